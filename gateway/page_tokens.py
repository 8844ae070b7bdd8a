"""Page tokens (AIP-158): opaque to clients, good only for the list that gave them."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re

from thoughtbeam.runtime.status import StatusError, Violation, invalid

_VERSION = 1
_CHECK_BYTES = 6


def encode(listing: str, cursor: str) -> str:
    """A token that continues `listing` (its resource name) after `cursor`."""
    body = json.dumps([_VERSION, listing, cursor], separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(_check(body) + body).decode().rstrip("=")


def decode(token: str, listing: str, form: re.Pattern[str]) -> str:
    """The cursor of a token made for `listing`. Raises INVALID_ARGUMENT for `page_token`.

    form: that all cursors of this list have; who knows how tokens are made can make others.
    """
    try:
        raw = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
    except (ValueError, binascii.Error) as error:
        raise refused("it is not one of ours") from error
    check, body = raw[:_CHECK_BYTES], raw[_CHECK_BYTES:]
    if check != _check(body):
        raise refused("it is not one of ours")
    try:
        version, *rest = json.loads(body)
    except (ValueError, TypeError, RecursionError) as error:
        raise refused("it is not one of ours") from error
    if version != _VERSION:
        raise refused("it comes from another version of the service")
    if len(rest) != 2 or not all(isinstance(part, str) for part in rest):
        raise refused("it is not one of ours")
    made_for, cursor = rest
    if made_for != listing:
        raise refused(f"it belongs to the list of {made_for}")
    if not form.fullmatch(cursor):
        raise refused("it is not one of ours")
    return str(cursor)


def _check(body: bytes) -> bytes:
    # tells a damaged token from a good one; it guards nothing secret, so any gateway can make it
    return hashlib.blake2b(body, digest_size=_CHECK_BYTES, person=b"page token").digest()


def refused(why: str) -> StatusError:
    """INVALID_ARGUMENT for `page_token`."""
    return invalid(Violation("page_token", f"must be the next_page_token of the same list: {why}"))
