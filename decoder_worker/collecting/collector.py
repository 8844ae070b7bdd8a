"""From questions to their traces: independent roots, then branches of them, all graded.

Roots are what a scorer is trained on; branches from random boundaries are what a search makes, and show how
much of a trace's fate is decided at which depth. Both are labelled by their own final answer.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

from decoder_worker.answers.equivalence import Equivalence
from decoder_worker.collecting.questions import Question
from decoder_worker.collecting.tracing import TYPE_BYTES, Tracing, Written
from decoder_worker.engine.base import Engine, EngineError, SamplingSpec
from thoughtbeam.runtime.log import EventLogger
from thoughtbeam.runtime.scorer_dataset import ROOT, DatasetError, QuestionRecord, TraceRecord
from thoughtbeam.runtime.scorer_dataset_writer import DatasetWriter
from thoughtbeam.runtime.tasks import task_group

log = EventLogger("decoder_worker.collecting")


@dataclass(frozen=True, slots=True)
class CollectorConfig:
    """traces, siblings: roots and branches of each question. sampling: max_tokens counts from the prompt's
    end, for branches too. seed: of the choice of parents and boundaries. flush_questions, flush_seconds:
    what is done is stored when it is so many questions, and after so long whatever else still runs."""

    traces: int
    siblings: int
    sampling: SamplingSpec
    answer_mode: str
    answer_regex: str | None = None
    seed: int = 0
    flush_questions: int = 16
    flush_seconds: float = 60.0


@dataclass(slots=True)
class Tally:
    """How far it is with the questions that were asked. before: those done in earlier runs. done: they too.
    traces, right, tokens: of this run."""

    questions: int
    before: int = 0
    done: int = 0
    failed: int = 0
    traces: int = 0
    right: int = 0
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class _Member:
    """A trace of a question, and where it comes from."""

    written: Written
    parent: int = ROOT
    fork_thought: int = 0


class Collector:
    """Collects questions into a data set. One that fails is noted and left out; only the engine's death ends
    the run, and it is raised when everything done so far is stored."""

    def __init__(
        self, engine: Engine, writer: DatasetWriter, equivalence: Equivalence, config: CollectorConfig
    ) -> None:
        self.tally = Tally(questions=0)
        self._engine = engine
        self._writer = writer
        self._equivalence = equivalence
        self._config = config
        self._tracing = Tracing(engine)

    async def collect(self, questions: Sequence[Question], report: Callable[[Tally], None]) -> None:
        """Collects those that are not in the data set yet. report: called after each question.

        Cancelled, it stores what is done. Raises EngineError, DatasetError, OSError.
        """
        done = self._writer.manifest.questions
        todo = [question for question in questions if question.key not in done]
        before = len(questions) - len(todo)
        self.tally = Tally(len(questions), before=before, done=before)
        left = iter(todo)
        per_question = self._config.traces
        # enough of them that their roots fill the slots twice over: nobody waits while one question grades
        at_once = 1 + math.ceil(2 * self._engine.info.slots / per_question)
        try:
            async with task_group() as group:
                endless = [
                    group.create_task(self._tracing.follow(), name="steps"),
                    group.create_task(self._store_now_and_then(), name="storing"),
                ]
                workers = [
                    group.create_task(self._work(left, report), name=f"questions {number}")
                    for number in range(at_once)
                ]
                await asyncio.wait(workers)  # where any task of the group fails, the group ends this
                for task in endless:
                    task.cancel()
        finally:
            self._writer.flush()

    async def _work(self, todo: Iterator[Question], report: Callable[[Tally], None]) -> None:
        for question in todo:
            try:
                record = await self._question(question)
                self._writer.add(record)
            except DatasetError:
                raise
            except Exception as error:
                if isinstance(error, EngineError) and error.fatal:
                    raise
                log.warning("question_failed", question=question.name, error=error)
                self._writer.fail(question.key, f"{question.name}: {error or type(error).__name__}")
                self.tally.failed += 1
            else:
                self.tally.done += 1
                self.tally.traces += len(record.traces)
                self.tally.right += sum(trace.right for trace in record.traces)
            self.tally.tokens = self._tracing.decoded
            if self._writer.waiting >= self._config.flush_questions:
                self._writer.flush()
            report(self.tally)

    async def _store_now_and_then(self) -> None:
        """By the clock, since the next question may take an hour to end."""
        while True:
            await asyncio.sleep(self._config.flush_seconds)
            if self._writer.waiting:
                self._writer.flush()

    async def _question(self, question: Question) -> QuestionRecord:
        config = self._config
        prompt = self._engine.tokenizer.encode_chat([{"role": "user", "content": question.text}])
        async with task_group() as group:
            tasks = [
                group.create_task(self._decode(f"{question.key}/{number}", len(prompt), prompt))
                for number in range(config.traces)
            ]
        members = [_Member(task.result()) for task in tasks]
        random = Random(f"{config.seed} {question.key}")
        members += await self._siblings(question, members, random)
        return await self._graded(question, members)

    async def _siblings(self, question: Question, roots: Sequence[_Member], random: Random) -> list[_Member]:
        """Branches of random roots, each from a random boundary of its parent."""
        parents = [number for number, root in enumerate(roots) if root.written.rows]
        if not parents:
            return []
        plans = []
        for number in range(len(roots), len(roots) + self._config.siblings):
            parent = random.choice(parents)
            plans.append((number, parent, random.randint(1, len(roots[parent].written.rows))))
        async with task_group() as group:
            tasks = []
            for number, parent, thoughts in plans:
                written = roots[parent].written
                prefix = written.tokens[: written.rows[thoughts - 1].position + 1]
                tasks.append(
                    group.create_task(self._decode(f"{question.key}/{number}", written.prompt, prefix))
                )
        return [
            _Member(task.result(), parent, thoughts)
            for task, (_, parent, thoughts) in zip(tasks, plans, strict=True)
        ]

    async def _decode(self, trace_id: str, prompt: int, tokens: Sequence[int]) -> Written:
        info, sampling = self._engine.info, self._config.sampling
        limit = min(prompt + sampling.max_tokens, info.max_context)
        if len(tokens) >= limit:
            raise EngineError(f"{len(tokens)} tokens leave no room to decode; must be fewer than {limit}")
        own = replace(sampling, max_tokens=limit - len(tokens), confidence=True)
        return await self._tracing.run(trace_id, prompt, tokens, own)

    async def _graded(self, question: Question, members: Sequence[_Member]) -> QuestionRecord:
        mode, regex = self._config.answer_mode, self._config.answer_regex
        answers = [
            await self._equivalence.extract(
                self._engine.tokenizer.decode(member.written.generated),
                mode,
                finish=member.written.finish,
                regex=regex,
            )
            for member in members
        ]
        groups = await self._equivalence.group([question.answer, *answers], mode)
        right = [group is not None and group == groups[0] for group in groups[1:]]
        rows = [row for member in members for row in member.written.rows]
        hidden_size = self._engine.info.hidden_size
        if wrong := [row for row in rows if len(row.data) != TYPE_BYTES[row.dtype] * hidden_size]:
            raise EngineError(
                f"a row has {len(wrong[0].data)} bytes of {wrong[0].dtype}; must be {hidden_size}"
            )
        return QuestionRecord(
            key=question.key,
            name=question.name,
            dtype=rows[0].dtype if rows else "",
            traces=[
                _record(number, member, answer or "", one)
                for number, (member, answer, one) in enumerate(zip(members, answers, right, strict=True))
            ],
        )


def _record(number: int, member: _Member, answer: str, right: bool) -> TraceRecord:
    written = member.written
    return TraceRecord(
        number=number,
        parent=member.parent,
        fork_thought=member.fork_thought,
        prompt_tokens=written.prompt,
        tokens=len(written.tokens) - written.prompt,
        finish=written.finish,
        answer=answer,
        right=right,
        rows=b"".join(row.data for row in written.rows),
        positions=[row.position for row in written.rows],
        confidences=written.thought_confidences(),
    )
