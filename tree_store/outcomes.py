"""Outcomes as they are stored: whole, under a key of their own, and abridged, in the tree's hash."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tree_store.model import Outcome, VoteRecord

# Bytes of an outcome, texts and votes together, that the tree's hash holds.
IN_META = 1024
# The part of its limit that an abridged outcome's answer and final text may take each, and a vote's answer.
_TEXT_PART = 4
_VOTE_TEXT_PART = 16
# Bytes of a vote apart from its answer, on the wire: generous.
_VOTE, _VOTE_NODE = 32, 5


def encode(outcome: Outcome) -> str:
    """JSON, read back by `decode`."""
    return json.dumps(dataclasses.asdict(outcome))


def decode(stored: str | bytes) -> Outcome:
    """The inverse of `encode`."""
    fields = json.loads(stored)
    return Outcome(**fields | {"votes": _votes(fields["votes"])})


def encode_votes(votes: Sequence[VoteRecord]) -> str:
    """JSON, read back by `decode_votes`."""
    return json.dumps([dataclasses.asdict(vote) for vote in votes])


def decode_votes(stored: str) -> tuple[VoteRecord, ...]:
    """The inverse of `encode_votes`."""
    return _votes(json.loads(stored))


def _votes(stored: Sequence[Mapping[str, Any]]) -> tuple[VoteRecord, ...]:
    return tuple(VoteRecord(v["answer"], v["weight"], tuple(v["nodes"])) for v in stored)


def abridge(outcome: Outcome, limit: int) -> Outcome:
    """An outcome whose texts and votes take at most `limit` bytes on the wire: as it is if it fits, else with
    texts cut, votes left out from the end, and `abridged` set."""
    if size(outcome) <= limit:
        return outcome
    answer = None if outcome.answer is None else cut(outcome.answer, limit // _TEXT_PART)
    final_text = cut(outcome.final_text, limit // _TEXT_PART)
    room = limit - _bytes(answer or "") - _bytes(final_text)
    votes = tuple(_that_fit(outcome.votes, room, limit // _VOTE_TEXT_PART))
    return dataclasses.replace(outcome, answer=answer, final_text=final_text, votes=votes, abridged=True)


def size(outcome: Outcome) -> int:
    """Bytes that its texts and votes take on the wire, at most."""
    texts = _bytes(outcome.answer or "") + _bytes(outcome.final_text)
    return texts + sum(map(_vote_size, outcome.votes))


def cut(text: str, limit: int) -> str:
    """The beginning of a text, in at most `limit` bytes of UTF-8."""
    return text.encode()[:limit].decode(errors="ignore")


def _that_fit(votes: tuple[VoteRecord, ...], room: int, text_limit: int) -> Iterator[VoteRecord]:
    for vote in votes:
        shown = dataclasses.replace(vote, answer=cut(vote.answer, text_limit))
        room -= _vote_size(shown)
        if room < 0:
            return
        yield shown


def _vote_size(vote: VoteRecord) -> int:
    return _bytes(vote.answer) + _VOTE + _VOTE_NODE * len(vote.nodes)


def _bytes(text: str) -> int:
    return len(text.encode())
