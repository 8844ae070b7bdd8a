from __future__ import annotations

import pytest

from tree_store.model import Outcome, VoteRecord
from tree_store.outcomes import IN_META, abridge, cut, decode, decode_votes, encode, encode_votes, size

OUTCOME = Outcome(
    answer="29 €",
    node=3,
    weight=1 / 3,
    share=2 / 3,
    final_text='The "answer"\n\nis </think> 29.',
    votes=(VoteRecord("29 €", 1 / 3, (3, 1)), VoteRecord("52", 1 / 6, (2,))),
    ended_by="tokens",
    degraded=True,
)
LONG = Outcome(
    "€" * 5000, 1, 1.0, 1.0, "x" * 5000, tuple(VoteRecord(f"{n}" * 50, 1.0, (n,)) for n in range(99))
)


@pytest.mark.parametrize("outcome", [OUTCOME, LONG, Outcome(None), abridge(LONG, IN_META)])
def test_an_outcome_comes_back_as_it_was(outcome: Outcome) -> None:
    assert decode(encode(outcome)) == outcome
    assert decode_votes(encode_votes(outcome.votes)) == outcome.votes


def test_what_fits_is_left_as_it_is() -> None:
    assert abridge(OUTCOME, IN_META) is OUTCOME
    assert abridge(LONG, size(LONG)) is LONG


@pytest.mark.parametrize("limit", [16, 100, IN_META, 5000, 20_000, size(LONG) - 1])
def test_what_does_not_is_cut_at_characters_and_votes_are_left_out_from_the_end(limit: int) -> None:
    short = abridge(LONG, limit)

    assert size(short) <= limit
    assert short.abridged
    assert short.answer is not None
    assert LONG.answer is not None
    assert LONG.answer.startswith(short.answer)
    assert LONG.final_text.startswith(short.final_text)
    votes = zip(short.votes, LONG.votes, strict=False)
    assert all(ours.nodes == theirs.nodes and theirs.answer.startswith(ours.answer) for ours, theirs in votes)
    assert (short.node, short.weight, short.share, short.ended_by) == (1, 1.0, 1.0, "")


def test_a_limit_is_made_use_of() -> None:
    assert size(abridge(LONG, 20_000)) > 10_000


@pytest.mark.parametrize(
    ("text", "limit", "rest"), [("a€", 4, "a€"), ("a€", 3, "a"), ("€", 2, ""), ("", 0, "")]
)
def test_a_text_is_cut_between_characters(text: str, limit: int, rest: str) -> None:
    assert cut(text, limit) == rest
