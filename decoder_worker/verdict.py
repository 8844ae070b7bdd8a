"""The end of a search: answers are grouped, the vote is held, the outcome written down."""

from __future__ import annotations

import time

from decoder_worker.answers import votes
from decoder_worker.answers.candidates import candidate
from decoder_worker.answers.equivalence import Equivalence
from decoder_worker.answers.extraction import AnswerMode, final_text
from decoder_worker.answers.votes import Decision
from decoder_worker.engine.base import Tokenizer
from decoder_worker.search import Search
from decoder_worker.tree_view import Trace
from thoughtbeam.runtime.log import EventLogger
from tree_store.model import Outcome, VoteRecord

# All traces of a tree together: a client's pattern may take for ever on each.
REGEX_SECONDS = 10.0

log = EventLogger("decoder_worker.verdict")


async def decide(search: Search, equivalence: Equivalence, tokenizer: Tokenizer) -> Outcome:
    """Holds the policy's vote over the finished traces; an unscored one when scores were lost."""
    finished = search.view.finished
    if search.spec.answer_mode == AnswerMode.REGEX:
        give_up = time.monotonic() + REGEX_SECONDS
        for trace in finished:
            if time.monotonic() > give_up:
                log.warning("answer_regex_too_slow", tree_id=search.tree_id)
                break
            text = tokenizer.decode(trace.sequence())
            trace.answer = await equivalence.extract(
                text, AnswerMode.REGEX, finish=trace.finish_reason, regex=search.spec.answer_regex
            )
    groups = await equivalence.group([t.answer for t in finished], search.spec.answer_mode)
    candidates = [candidate(t, group) for t, group in zip(finished, groups, strict=True)]
    decision = votes.majority(candidates) if search.degraded else search.vote(candidates)
    return _outcome(search, decision, tokenizer)


def winning_path(search: Search, outcome: Outcome) -> list[Trace]:
    """The trace that stands for the answer and its ancestors."""
    if outcome.node is None:
        return []
    trace = search.view[outcome.node]
    return [trace, *trace.ancestors()]


def _outcome(search: Search, decision: Decision, tokenizer: Tokenizer) -> Outcome:
    records = tuple(
        VoteRecord(search.view[group.nodes[0]].answer or "", group.weight, group.nodes)
        for group in decision.groups
    )
    if decision.winner is None:
        return Outcome(answer=None, ended_by=search.ended_by, degraded=search.degraded)
    best = search.view[decision.winner.nodes[0]]
    everything = sum(group.weight for group in decision.groups)
    return Outcome(
        answer=best.answer,
        node=best.number,
        weight=decision.winner.weight,
        # all weights may be zero: scores can be
        share=decision.winner.weight / everything if everything else 1 / len(decision.groups),
        final_text=final_text(tokenizer.decode(best.sequence())),
        votes=records,
        ended_by=search.ended_by,
        degraded=search.degraded,
    )
