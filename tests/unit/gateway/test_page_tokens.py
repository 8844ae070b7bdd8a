"""Page tokens: opaque, good for their own list only, never trusted."""

from __future__ import annotations

import base64
import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway import page_tokens
from thoughtbeam.runtime.status import StatusError

ANY = re.compile(r".*", re.DOTALL)


def refusal(token: str, listing: str, form: re.Pattern[str] = ANY) -> str:
    with pytest.raises(StatusError) as caught:
        page_tokens.decode(token, listing, form)
    (violation,) = caught.value.violations
    assert violation.field == "page_token"
    return violation.description


@settings(deadline=None)
@given(listing=st.text(), cursor=st.text())
def test_a_token_gives_back_its_cursor_and_travels_in_a_url(listing: str, cursor: str) -> None:
    token = page_tokens.encode(listing, cursor)

    assert page_tokens.decode(token, listing, ANY) == cursor
    assert re.fullmatch(r"[A-Za-z0-9_-]+", token)


def test_a_token_of_another_list_is_refused_by_its_name() -> None:
    token = page_tokens.encode("trees/1/nodes", "5")

    assert "it belongs to the list of trees/1/nodes" in refusal(token, "trees/2/nodes")


@settings(deadline=None)
@given(token=st.text(min_size=1))
def test_what_is_no_token_is_refused(token: str) -> None:
    assert "not one of ours" in refusal(token, "trees")


@settings(deadline=None)
@given(st.data())
def test_a_token_that_was_changed_is_refused(data: st.DataObject) -> None:
    token = page_tokens.encode("trees", "cursor")
    at = data.draw(st.integers(0, len(token) - 2))
    letter = data.draw(st.sampled_from("ABCabc012-_").filter(lambda c: c != token[at]))

    assert "not one of ours" in refusal(token[:at] + letter + token[at + 1 :], "trees")


def test_a_token_of_another_version_is_refused() -> None:
    assert "another version" in refusal(made(b'[2, "trees", "cursor"]'), "trees")


BODIES = st.one_of(
    st.binary(),
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(), lambda inner: st.lists(inner, max_size=4)
    ).map(lambda value: json.dumps(value).encode()),
    st.tuples(st.just(1), st.just("trees"), st.text() | st.none() | st.integers()).map(
        lambda value: json.dumps(value).encode()
    ),
    st.just(b"[" * 100_000),
)


@settings(deadline=None)
@given(body=BODIES)
def test_whoever_knows_how_tokens_are_made_gets_no_further(body: bytes) -> None:
    assert refusal(made(body), "trees", re.compile("[0-9]+ tree"))


def made(body: bytes) -> str:
    """A token as ours are, but for what is in it."""
    return base64.urlsafe_b64encode(page_tokens._check(body) + body).decode().rstrip("=")
