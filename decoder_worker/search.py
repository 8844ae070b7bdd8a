"""One search: engine events → scores → policy → actions → engine and tree store.

The only place where the seams meet. Everything here is synchronous and quick: it changes the Tree View, notes
the change in the log, and asks its host for what takes time (a slot, an abort, a score). The policy alone
decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from decoder_worker.answers.extraction import AnswerMode, extract
from decoder_worker.answers.votes import Candidate, Decision
from decoder_worker.checkpoints import Checkpoints
from decoder_worker.embedding.merged import MergedThoughts
from decoder_worker.embedding.queue import EmbeddedThought
from decoder_worker.engine.base import FinishReason, HiddenRow, SamplingSpec, Tokenizer, TraceOutput
from decoder_worker.policies.base import (
    Action,
    BoundariesScored,
    Branch,
    EngineIdle,
    Evict,
    Finish,
    Observation,
    Policy,
    Pressure,
    Prune,
    Resume,
    Revive,
    SpawnRoot,
    Started,
    StepsPassed,
    ThoughtsEmbedded,
    TracesFinished,
)
from decoder_worker.scoring.base import UNSCORABLE, ScoredRow
from decoder_worker.scoring.of_search import SearchScores
from decoder_worker.scoring.wire import BoundaryRow
from decoder_worker.spec import Host, SearchSpec
from decoder_worker.tree_log import TreeLog
from decoder_worker.tree_view import IllegalTransitionError, Trace, TreeView
from thoughtbeam.runtime.log import EventLogger
from tree_store.model import COUNTING, NodeState, RoundRecord, Thought

log = EventLogger("decoder_worker.search")


class Search:
    """Runs one tree under its policy until it ends; `ended` is then set and nothing counts any more."""

    def __init__(
        self, spec: SearchSpec, policy: Policy[Any], host: Host, log: TreeLog, tokenizer: Tokenizer
    ) -> None:
        self.spec = spec
        self.policy = policy
        self.view = TreeView()
        self.ended = asyncio.Event()
        self.ended_by = ""
        self.degraded = False
        self.abandoned = False
        self.recomputed = 0
        self.rounds = 0
        self.steps = 0  # engine steps with live traces since the policy last heard of them
        self.error: BaseException | None = None
        self._state = policy.initial(spec.seed)
        self._host = host
        self._log = log
        self._tokenizer = tokenizer
        self._checkpoints = Checkpoints(log, tokenizer)
        self._merged = MergedThoughts(policy, tokenizer)
        self._scores = SearchScores(spec, log, tokenizer, wanted=policy.needs_scores)

    # ---- what others read

    @property
    def tree_id(self) -> str:
        return self.spec.tree_id

    @property
    def prompt_tokens(self) -> int:
        return len(self.spec.prompt)

    @property
    def high_water(self) -> float:
        return self.policy.high_water

    @property
    def holds_at_boundaries(self) -> bool:
        return self.policy.holds_at_boundaries

    def vote(self, candidates: Sequence[Candidate]) -> Decision:
        """The policy's vote over the finished traces."""
        return self.policy.vote(self._state, self.view, candidates)

    @property
    def settled(self) -> bool:
        """Whether it has ended and the vote has every score that it could use."""
        return self.ended.is_set() and self._scores.settled

    async def scores_settled(self) -> None:
        """Waits until every boundary that was sent to the scorer has come back."""
        await self._scores.until_settled()

    @property
    def score_wait(self) -> float:
        """Seconds in which it could not go on for want of a score."""
        return self._scores.waited

    # ---- events

    def start(self) -> None:
        """Begins a new search."""
        self._log.fields(prompt=self.prompt_tokens)
        self._scores.note_scorer()
        self._note_policy_state()
        self._observe(Started())
        self._check_idle()

    def resume(
        self,
        view: TreeView,
        state: Any,
        queue: Sequence[Trace],
        *,
        recomputed: int,
        rounds: int,
        steps: int,
        degraded: bool,
        same_scorer: bool,
    ) -> None:
        """Goes on from a checkpoint: pending traces queue again in the order given, held ones stay held and
        ghosts ghosts, the rest is kept. same_scorer: else no thought is scored any more, for scores of two
        scorers do not mix."""
        self.view, self._state = view, state
        self.recomputed, self.rounds, self.steps, self.degraded = recomputed, rounds, steps, degraded
        if same_scorer:
            self._scores.note_scorer()
        else:
            self._scores.wanted = False
            self.degrade("SCORER_CHANGED")
        for trace in view.traces.values():
            self._checkpoints.restore(trace)
        for trace in queue:
            self._host.enqueue(self, trace)
        self._check_idle()

    def granted(self, trace: Trace) -> tuple[list[int], SamplingSpec]:
        """The trace has a slot and becomes live; returns what the engine is to go on from."""
        self._move(trace, NodeState.LIVE)
        sampling = replace(
            self.spec.sampling,
            max_tokens=self.spec.trace_limit - trace.total_tokens,
            confidence=self.policy.needs_confidence or self._scores.by_confidence,
        )
        if trace.parent is not None and self.policy.child_temperature is not None:
            sampling = replace(sampling, temperature=self.policy.child_temperature)
        self._embed(trace, again=True)
        return [*self.spec.prompt, *trace.sequence()], sampling

    def on_outputs(self, outputs: Sequence[tuple[int, TraceOutput]]) -> None:
        """One engine step's outputs for this tree, by node."""
        if self.ended.is_set():
            return
        finished: list[int] = []
        held = False
        rows: list[BoundaryRow] = []
        traces, live = self.view.traces, NodeState.LIVE
        for number, output in outputs:
            trace = traces[number]
            if trace.state is not live:
                continue
            if output.cached_tokens is not None:
                self._count_recomputed(trace, output.cached_tokens)
            if output.row is not None and self._stops_at(trace, output.row):
                rows.extend(self._pass_boundary(trace, output.row))
                self._hold(trace, running=output.finish is None)
                held = True
                continue
            self.view.append_tokens(trace, output.tokens, output.confidences)
            if output.row is not None:
                rows.extend(self._pass_boundary(trace, output.row))
            if output.finish is not None:
                self._finish_trace(trace, output.finish)
                finished.append(number)
            elif output.row is not None:
                self._embed(trace)
        if rows:
            self._host.score(self, rows)
        if finished:
            self._observe(TracesFinished(tuple(finished)))
        if finished or held:
            self._check_idle()
        if self.spec.token_budget and self.view.generated >= self.spec.token_budget:
            self.stop("tokens")
        self._note_wait()

    def on_scores(self, scored: Sequence[ScoredRow]) -> None:
        """Scores came back; those of finished traces count for the vote also after the search has ended."""
        news: list[tuple[int, float]] = []
        for item in scored:
            trace = self.view[item.row.node]
            if trace.number not in self._scores:
                continue
            if item.score is not None:
                self.view.set_score(trace, item.row.thought, item.score, item.projected)
                news.append((trace.number, item.score))
                self._scores.note_mismatch(item.mismatch)
            elif item.error not in UNSCORABLE:
                self.degrade(item.error)
            if self.abandoned or not self.ended.is_set() or trace.state is NodeState.FINISHED:
                self._log.thought(trace, trace.thoughts[item.row.thought], item.projected)
            self._scores.back(trace.number)
            self._forget_ended(trace)
        self._settle_scores()
        if news:
            self._observe(BoundariesScored(tuple(news)))
        self._check_idle()  # also when scores are lost: nothing waits for them any more
        self._note_wait()

    def wants_embedding(self, node: int) -> bool:
        """Whether a vector of this node would still be looked at."""
        return not self.ended.is_set() and self.view[node].state is NodeState.LIVE

    def on_embeddings(self, embedded: Sequence[EmbeddedThought]) -> None:
        """Vectors came back; those of traces that have left meanwhile are dropped."""
        news: list[tuple[int, int]] = []
        for item in embedded:
            if not self.wants_embedding(item.node):
                continue
            if item.vector is None:
                self.degrade("EMBEDDER_FAILED")
                continue
            self.view[item.node].embeddings[item.index] = item.vector
            news.append((item.node, item.index))
        if news:
            self._observe(ThoughtsEmbedded(tuple(news)))
            self._check_idle()

    def on_steps(self, steps: int) -> None:
        """So many engine steps have passed, and all that they gave this tree has been told."""
        every = self.policy.check_every
        if not every or self.ended.is_set() or not self.view.count(NodeState.LIVE):
            return
        self.steps += steps
        if self.steps >= every:
            passed, self.steps = self.steps, 0
            self._observe(StepsPassed(passed, self._host.kv_use))
            self._check_idle()

    def on_pressure(self, pressure: Pressure) -> None:
        """The engine runs out of KV and this tree is to give some back."""
        self._observe(pressure)
        self._check_idle()

    def degrade(self, why: str) -> None:
        """Scores or vectors are missing: the vote will be an unscored one."""
        if not self.degraded:
            log.warning("search_degraded", tree_id=self.tree_id, why=why)
            self._log.fields(degraded="1")
        self.degraded = True

    def stop(self, ended_by: str = "") -> None:
        """Ends the search: what still counts is cancelled. ended_by: the budget that ran out, if one did."""
        if self.ended.is_set():
            return
        self.ended_by = ended_by
        self._scores.note_wait(running=True)
        for trace in self.view.counting:
            self._leave(trace, NodeState.CANCELLED)
        self.ended.set()
        self._settle_scores()

    def abandon(self) -> None:
        """Lets go of the engine without ending the tree: handed back, somebody else's by now, or broken."""
        if self.ended.is_set():
            return
        self.abandoned = True
        for trace in self.view.in_state(NodeState.PENDING, NodeState.LIVE):
            self._host.withdraw(self, trace, running=trace.state is NodeState.LIVE)
        self.ended.set()
        self._settle_scores()

    def checkpoint(self) -> None:
        """Notes what an abandoned search has beyond its traces' last boundaries."""
        for trace in self.view.in_state(NodeState.LIVE):
            self._save(trace)
        if len(self.view):  # else it was still being loaded
            self._note_progress()
        for trace, thought in self._scores.give_up(self.view):
            self._log.thought(trace, thought)

    def fail(self, error: BaseException) -> None:
        """Lets go of a search that cannot go on."""
        self.error = self.error or error
        self.abandon()

    # ---- the policy decides

    def _observe(self, observation: Observation) -> None:
        if self.ended.is_set():
            return
        step = self.policy.step(self._state, self.view, observation)
        if step.tournament:
            self._record_round(step.actions)
        if step.state is not self._state:
            self._state = step.state
            self._note_policy_state()
        for action in step.actions:
            self._act(action)

    def _note_policy_state(self) -> None:
        state = self._state
        self._log.policy_state(lambda: self.policy.dump(state))

    def _act(self, action: Action) -> None:
        match action:
            case SpawnRoot():
                self._born(self.view.add_root())
            case Branch(parent=parent):
                self._born(self.view.add_branch(self.view[parent]))
            case Prune(node=node):
                self._leave(self.view[node], NodeState.PRUNED)
            case Evict(node=node):
                self._evict(self.view[node])
            case Resume(node=node):
                self._requeue(self.view[node], NodeState.HELD)
            case Revive(node=node):
                self._requeue(self.view[node], NodeState.GHOST, reason="revived")
            case Finish():
                self.stop()

    def _record_round(self, actions: Sequence[Action]) -> None:
        """Notes a tournament as it finds the tree, before its actions."""
        self.rounds += 1
        self._log.round(
            RoundRecord(
                number=self.rounds,
                thoughts=self.view.thoughts_scored,
                capacity_count=self.view.capacity_count,
                live=self.view.count(NodeState.LIVE),
                ghosts=self.view.count(NodeState.GHOST),
                kv_use=self._host.kv_use,
                pruned=tuple(a.node for a in actions if isinstance(a, Prune)),
                branched=tuple(a.parent for a in actions if isinstance(a, Branch)),
            )
        )

    def _check_idle(self) -> None:
        """Tells the policy when the engine runs nothing for this tree and no held trace waits for its score;
        it must end or set something going."""
        if self.ended.is_set() or not self._idle:
            return
        self._observe(EngineIdle())
        if not self.ended.is_set() and self._idle:
            self.fail(RuntimeError(f"policy {self.policy.name} neither ended nor went on when idle"))

    @property
    def _idle(self) -> bool:
        if self.view.count(NodeState.PENDING, NodeState.LIVE):
            return False
        return not any(self.view[n].state is NodeState.HELD for n in self._scores)

    # ---- changes of single traces

    def _born(self, trace: Trace) -> None:
        self._log.moved(trace)
        self._host.enqueue(self, trace)

    def _move(self, trace: Trace, to: NodeState, reason: str = "") -> None:
        self.view.move(trace, to)
        self._log.moved(trace, reason)

    def _leave(self, trace: Trace, to: NodeState) -> None:
        """Pruned or cancelled: its tokens are kept, its place and its KV are given up."""
        was = trace.state
        self._save(trace, last=True)
        self._move(trace, to)
        trace.embeddings.clear()  # only those of live traces are looked at
        if was in (NodeState.PENDING, NodeState.LIVE):
            self._host.withdraw(self, trace, running=was is NodeState.LIVE)
        self._forget_ended(trace)

    def _evict(self, trace: Trace) -> None:
        self._save(trace)
        self._move(trace, NodeState.GHOST, reason="pressure")
        self._host.withdraw(self, trace, running=True)

    def _hold(self, trace: Trace, *, running: bool) -> None:
        """Stopped at its boundary; `running`: the engine has gone on beyond it."""
        self._move(trace, NodeState.HELD)
        self._host.withdraw(self, trace, running=running)

    def _requeue(self, trace: Trace, was: NodeState, reason: str = "") -> None:
        if trace.state is not was:  # a live one goes to pending only in resume.py
            raise IllegalTransitionError(f"node {trace.number} is {trace.state}, not {was}")
        self._move(trace, NodeState.PENDING, reason=reason)
        self._host.enqueue(self, trace)

    def _finish_trace(self, trace: Trace, finish: FinishReason) -> None:
        trace.finish_reason = str(finish)
        if self.spec.answer_mode != AnswerMode.REGEX:  # a client's pattern may take for ever: verdict.py
            text = self._tokenizer.decode(trace.sequence())
            trace.answer = extract(text, self.spec.answer_mode, finish=str(finish))
        self._save(trace, last=True)
        self._move(trace, NodeState.FINISHED, reason=str(finish))
        trace.embeddings.clear()
        self._host.withdraw(self, trace, running=False)
        self._forget_ended(trace)

    def _stops_at(self, trace: Trace, row: HiddenRow) -> bool:
        """Whether the row is that of a boundary at which the trace now stands, and the policy holds it there.

        The engine has stopped it, or it was lost there with a worker before its row came: then the engine
        goes on beyond it, and what it gives is dropped. A trace that was resumed there has passed it.
        """
        position = row.position + 1 - self.prompt_tokens
        return self.holds_at_boundaries and position == trace.total_tokens and position > _passed(trace)

    def _pass_boundary(self, trace: Trace, row: HiddenRow) -> Sequence[BoundaryRow]:
        """Notes a thought of its own. The first row after an add may be an older boundary: not again."""
        position = row.position + 1 - self.prompt_tokens
        if position <= _passed(trace):
            return ()
        self._save(trace, upto=position)
        confidence = trace.mean_confidence(_passed(trace), position)
        trace.thoughts.append(Thought(position, confidence=confidence, text_end=trace.text_bytes))
        if not self._scores.wanted:
            self._log.thought(trace, trace.thoughts[-1])
            return ()
        return (self._scores.send(trace, row),)

    def _save(self, trace: Trace, upto: int | None = None, *, last: bool = False) -> None:
        if self._checkpoints.save(trace, upto, last=last):
            self._note_progress()

    def _note_progress(self) -> None:
        self._log.fields(generated=self.view.generated, recomputed=self.recomputed, steps=self.steps)

    def _count_recomputed(self, trace: Trace, cached: int) -> None:
        """Prefill beyond what the cache held is recomputation, but for a root's first prompt."""
        if trace.total_tokens:
            self.recomputed += self.prompt_tokens + trace.total_tokens - cached

    # ---- scores and vectors on their way

    def _embed(self, trace: Trace, *, again: bool = False) -> None:
        """Sends what of the live trace is to be embedded now. again: it has come back, or from elsewhere."""
        if self.policy.needs_embeddings and (thoughts := self._merged.take(trace, again=again)):
            self._host.embed(self, thoughts)

    def _forget_ended(self, trace: Trace) -> None:
        """Once it has ended and nothing of it is under way, the scorer need not know it any more."""
        if trace.state not in COUNTING and trace.number not in self._scores:
            self._scores.drop(trace.number)
            self._host.forget(self, trace)

    def _note_wait(self) -> None:
        if not self.ended.is_set():
            self._scores.note_wait(running=self.view.count(NodeState.PENDING, NodeState.LIVE) > 0)

    def _settle_scores(self) -> None:
        """Settled: nothing is on its way, or after the end nothing that the vote could still use. Of an
        abandoned search everything is: the next owner's vote may use it."""
        everything = self.abandoned or not self.ended.is_set()
        self._scores.settle(lambda node: everything or self.view[node].state is NodeState.FINISHED)


def _passed(trace: Trace) -> int:
    """Position of the last boundary that is known of the trace; where it begins if there is none."""
    return trace.thoughts[-1].position if trace.thoughts else trace.branch_position
