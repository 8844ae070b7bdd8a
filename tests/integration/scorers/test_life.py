"""A scorer's whole life, small: collected on real vLLM, both kinds trained, judged, served, searched by."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from decoder_worker.answers.equivalence import Equivalence
from decoder_worker.collecting.collector import Collector, CollectorConfig
from decoder_worker.collecting.questions import read_questions
from decoder_worker.collecting.tracing import Tracing
from decoder_worker.engine.base import SamplingSpec
from decoder_worker.engine.vllm_engine import VllmEngine
from prm_worker.scorer_file import load_scorer
from prm_worker.scorers.base import Float32Array, HistoryScorer, TracePart
from tests.integration.engine.reference import Reference
from tests.integration.prm_worker.serving import free_port, start_worker
from tests.integration.service.conftest import SMALL_GAMBIT, Service, working
from tests.integration.service.test_search import MEDIUM, assert_accounts
from thoughtbeam.results import NodeState, TreeState
from thoughtbeam.runtime.scorer_dataset import Origin
from thoughtbeam.runtime.scorer_dataset_reader import read_traces
from thoughtbeam.runtime.scorer_dataset_writer import DatasetWriter
from thoughtbeam.runtime.tasks import task_group

ROOT = Path(__file__).parents[3]
MODEL = ROOT / "thoughtbeam" / "models" / "tiny_reasoner"
# of which the model gets about half right: any few of them have right and wrong traces
QUESTIONS = [ROOT / "bench" / "questions" / "scorer_train_medium.jsonl"]
ARCHS = ["mlp", "sequence"]


async def thoughtbeam(*arguments: object) -> str:
    """What `thoughtbeam …` prints; it has to succeed."""
    command = [sys.executable, "-P", "-m", "thoughtbeam.cli.main", *map(str, arguments)]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    printed, _ = await process.communicate()
    assert process.returncode == 0, printed.decode()
    return printed.decode()


@pytest.fixture(scope="module")
async def data(vllm_engine: VllmEngine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Traces of twelve questions."""
    info = vllm_engine.info
    sampling = SamplingSpec(max_tokens=info.max_context - 1)
    path = tmp_path_factory.mktemp("data")
    origin = Origin(
        *(info.model, info.fingerprint, info.version, info.boundary_rule, info.hidden_size),
        sampling={"temperature": sampling.temperature, "max_tokens": sampling.max_tokens},
        traces=4,
        siblings=2,
        answer_mode="integer",
    )
    config = CollectorConfig(traces=4, siblings=2, sampling=sampling, answer_mode="integer")
    questions = read_questions(QUESTIONS, "integer", limit=12)
    with DatasetWriter(path, origin) as writer:
        async with Equivalence() as equivalence:
            collector = Collector(vllm_engine, writer, equivalence, config)
            await collector.collect(questions, lambda _: None)
        assert writer.manifest.failed == {}
    return path


async def test_traces_and_branches_are_whole(data: Path) -> None:
    traces = read_traces([data])
    assert len(traces) == 12 * 6
    assert 0 < traces.right.mean() < 1
    assert (traces.confidences > 0).all()
    for branch in np.flatnonzero(traces.parent >= 0):
        shared = int(traces.fork_thought[branch])
        parent = int(traces.parent[branch])
        assert traces.paths[branch][:shared].tolist() == traces.paths[parent][:shared].tolist()


async def test_rows_and_confidences_are_those_of_a_plain_forward_pass(vllm_engine: VllmEngine) -> None:
    tracing = Tracing(vllm_engine)
    sampling = SamplingSpec(max_tokens=400, confidence=True)
    question = read_questions(QUESTIONS, "integer", limit=1)[0]
    prompt = vllm_engine.tokenizer.encode_chat([{"role": "user", "content": question.text}])
    async with task_group() as group:
        following = group.create_task(tracing.follow())
        root = await tracing.run("root", len(prompt), prompt, sampling)
        while len(root.rows) < 2:  # now and then a trace ends at once
            root = await tracing.run("root", len(prompt), prompt, sampling)
        prefix = root.tokens[: root.rows[1].position + 1]
        branch = await tracing.run("branch", len(prompt), prefix, sampling)
        following.cancel()
    reference = Reference(MODEL)
    for written in (root, branch):
        hidden = reference.hidden(written.tokens)
        ends = [row.position for row in written.rows]
        # a row comes with the token after it
        boundaries = sorted(reference.boundaries(written.tokens[:-1]))
        assert ends == [position for position in boundaries if position >= written.start]
        for row in written.rows:
            values = np.frombuffer(row.data, dtype=np.float32)
            assert np.abs(values - hidden[row.position]).max() < 1e-4
        starts = [written.start, *(end + 1 for end in ends)]
        each = [
            np.mean(written.confidences[start - written.start : end + 1 - written.start])
            for start, end in zip(starts, ends, strict=False)
        ]
        assert written.thought_confidences() == pytest.approx(each)


@pytest.fixture(scope="module")
async def trained(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """A scorer of each kind, by its name."""
    files = {arch: tmp_path_factory.mktemp("trained") / f"{arch}.pt" for arch in ARCHS}
    for arch, file in files.items():
        printed = await thoughtbeam(
            *("scorer", "train", "--arch", arch, "--data", data, "--out", file),
            *("--epochs", 2, "--stop-share", 0.3, "--test-share", 0.3, "--threads", 1),
        )
        assert f"wrote {file}" in printed
    return files


async def test_scorers_are_judged_by_what_they_have_not_seen(
    data: Path, trained: Mapping[str, Path], tmp_path: Path
) -> None:
    out = tmp_path / "report"
    printed = await thoughtbeam(
        *("scorer", "evaluate", "--scorer", *trained.values(), "confidence"),
        *("--data", data, "--out", out, "--threads", 1),
    )
    assert "sequence.pt (sequence) against mlp.pt (mlp)" in printed
    report = json.loads((out / "report.json").read_text())
    assert [scorer["kind"] for scorer in report["scorers"]] == [*ARCHS, "confidence"]
    assert report["data"]["questions"] == 4  # those that were kept for it
    assert (out / "report.html").stat().st_size > 5_000


@asynccontextmanager
async def serving(scorer: Path) -> AsyncIterator[str]:
    """A prm worker process that serves this scorer; its address."""
    port = free_port()
    worker = await start_worker(port, scorer)
    try:
        yield f"127.0.0.1:{port}"
    finally:
        status, _, errors = await worker.stop()
    assert status == 0, errors.decode()


def scores_of(file: Path, rows: Float32Array) -> Float32Array:
    """What the scorer in this file gives for the thoughts of one trace."""
    scorer, _ = load_scorer(file)
    if isinstance(scorer, HistoryScorer):
        return scorer.score_parts(rows, [TracePart("tree", 1, first=0, rows=len(rows))]).scores
    return scorer.score(rows)


@pytest.mark.parametrize("arch", ARCHS)
async def test_gambit_searches_by_the_scores_of_a_scorer_just_trained(
    service: Service, trained: Mapping[str, Path], arch: str
) -> None:
    async with serving(trained[arch]) as target, working(replace(service, scorer=target)):
        result = await service.client.solve(
            MEDIUM, policy="gambit", parameters=SMALL_GAMBIT, answer_mode="integer"
        )
        tree = await service.client.tree(result.tree_id)

    assert (result.state, result.degraded) == (TreeState.SUCCEEDED, False)
    assert (result.scorer, result.scorer_mismatch) == (arch, "")
    assert_accounts(tree)
    assert tree.counts.pruned > 0
    assert tree.counts.branches > 0
    assert all(node.mean_score is not None for node in tree.nodes if node.state is NodeState.FINISHED)

    # and they are the scores that the file gives for the rows of a plain forward pass
    root = max((node for node in tree.nodes if node.parent is None), key=lambda node: node.thoughts)
    (content,) = await service.store.contents(result.tree_id, [root.number])
    prompt = service.engine.tokenizer.encode_chat([{"role": "user", "content": MEDIUM}])
    scored = [thought for thought in content.thoughts if thought.score is not None]
    assert len(scored) > 2
    hidden = Reference(MODEL).hidden([*prompt, *content.tokens])
    rows = hidden[[len(prompt) + thought.position - 1 for thought in scored]]
    expected = scores_of(trained[arch], rows)
    assert [thought.score for thought in scored] == pytest.approx(expected, abs=5e-3)
