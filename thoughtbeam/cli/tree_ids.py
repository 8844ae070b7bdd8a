"""How a command is told which search it is about."""

from __future__ import annotations

import argparse
import itertools

from thoughtbeam.client import Client
from thoughtbeam.errors import NotFoundError

_ID_LENGTH = 36
_SEARCHED = 1000


def tree_id(text: str) -> str:
    """An argument that names a search."""
    if not text.strip():
        raise argparse.ArgumentTypeError("an empty text names no search")
    return text.strip()


def find(client: Client, wanted: str | None) -> str:
    """The full id; of an id that begins so, if there is only one; None: of the newest search."""
    if wanted is not None and len(wanted) >= _ID_LENGTH:
        return wanted
    recent = itertools.islice(client.trees(page_size=_SEARCHED), _SEARCHED)
    found = [t.id for t in recent if wanted is None or t.id.startswith(wanted)]
    if not found and wanted is None:
        raise NotFoundError("no searches are kept", reason="TREE_NOT_FOUND")
    if len(found) != 1 and wanted is not None:
        how_many = f"{len(found) or 'none'} of the last {_SEARCHED} searches begin with {wanted!r}"
        raise NotFoundError(how_many, reason="TREE_NOT_FOUND")
    return found[0]
