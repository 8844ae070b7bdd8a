"""The commands that submit, read and delete a search, and those that look at the service."""

from __future__ import annotations

import json

import grpc
import pytest

from tests.unit.thoughtbeam.scripted_service import LOST, ScriptedService, result
from tests.unit.thoughtbeam.test_client_trees import TRIMMED, told, tree
from thoughtbeam import results
from thoughtbeam.cli import exits
from thoughtbeam.cli.event_line import event_line, event_object
from thoughtbeam.cli.main import main
from thoughtbeam.runtime.status import StatusError
from thoughtbeam.v1 import reasoning_pb2 as pb

Capture = pytest.CaptureFixture[str]
TREE_ID = "7b1f0bd4-4a0e-4bd3-8c7d-6f7a52c5d2f1"


@pytest.fixture(autouse=True)
def _service_of_the_commands(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THOUGHTBEAM_ENDPOINT", endpoint)


def result_pieces(message: pb.Result) -> list[pb.GetResultResponse]:
    raw = message.SerializeToString()
    return [pb.GetResultResponse(data=raw[at : at + 50]) for at in range(0, len(raw), 50)]


# ---- submit


def test_submit_prints_the_id_and_nothing_else(service: ScriptedService, capsys: Capture) -> None:
    submitted = pb.Tree(name=f"trees/{TREE_ID}", state=pb.TREE_STATE_QUEUED)
    service.replies["Submit"] = [pb.SubmitResponse(tree=submitted)] * 2

    assert main(["submit", "6 * 7?", "--policy", "vanilla", "--max-tokens", "9"]) == exits.OK
    assert capsys.readouterr() == (f"{TREE_ID}\n", "")
    assert main(["submit", "6 * 7?", "--json"]) == exits.OK
    assert json.loads(capsys.readouterr().out)["state"] == "queued"

    search = service.requests[0].search
    assert (search.question, search.policy, search.budgets.tokens) == ("6 * 7?", "vanilla", 9)


# ---- tree result


def test_tree_result(service: ScriptedService, capsys: Capture) -> None:
    pieces = result_pieces(result(TREE_ID).result)
    assert len(pieces) > 2
    service.replies["GetResult"] = [pieces, pieces]

    assert main(["tree", "result", TREE_ID]) == exits.OK
    assert "Answer: 42" in capsys.readouterr().out
    assert main(["tree", "result", TREE_ID, "--json"]) == exits.OK
    document = json.loads(capsys.readouterr().out)
    assert (document["answer"]["text"], len(document["votes"])) == ("42", 2)


def test_tree_result_of_a_search_without_an_answer(service: ScriptedService, capsys: Capture) -> None:
    service.replies["GetResult"] = [result_pieces(pb.Result(name=f"trees/{TREE_ID}", state=5))]

    assert main(["tree", "result", TREE_ID]) == exits.NO_ANSWER
    assert "No answer" in capsys.readouterr().out


def test_tree_result_of_a_search_that_runs(service: ScriptedService, capsys: Capture) -> None:
    service.replies["GetResult"] = [
        [StatusError(grpc.StatusCode.FAILED_PRECONDITION, "TREE_NOT_ENDED", "it runs")]
    ]

    assert main(["tree", "result", TREE_ID]) == exits.USAGE
    assert "TREE_NOT_ENDED" in capsys.readouterr().err


def test_tree_result_waits(service: ScriptedService, capsys: Capture) -> None:
    service.replies = {
        "GetTree": [
            tree(pb.TREE_STATE_RUNNING),
            tree(pb.TREE_STATE_SUCCEEDED, result=result(TREE_ID).result),
        ],
        "WatchTree": [[told("1-1", pb.TREE_STATE_SUCCEEDED)]],
    }

    assert main(["tree", "result", "--wait", TREE_ID]) == exits.OK
    assert "Answer: 42" in capsys.readouterr().out


# ---- tree text


def trace() -> list[pb.GetTraceResponse]:
    found = [
        pb.Thought(position=5, score=0.5, confidence=0.25, text_end=7, node=1),
        pb.Thought(position=9, text_end=12, node=3),
    ]
    return [
        pb.GetTraceResponse(node=pb.Node(number=3, parent=1)),
        pb.GetTraceResponse(thoughts=pb.Thoughts(thoughts=found)),
        pb.GetTraceResponse(text="a = 1\n\nb =\n\nand \x1b[31m so on"),
    ]


def test_tree_text(service: ScriptedService, capsys: Capture) -> None:
    service.replies["GetTrace"] = [trace()]

    assert main(["tree", "text", TREE_ID, "3"]) == exits.OK

    # what could steer a terminal is shown, not sent
    assert capsys.readouterr().out == (
        "── 1 score 0.500 · confidence 0.250 · to token 5 · inherited from 1\n"
        "a = 1\n"
        "── 2 unscored · to token 9\n"
        "b =\n"
        "── after the last boundary\n"
        "and \\x1b[31m so on\n"
    )


def test_tree_text_as_json(service: ScriptedService, capsys: Capture) -> None:
    service.replies["GetTrace"] = [trace()]

    assert main(["tree", "text", TREE_ID, "3", "--own", "--json"]) == exits.OK

    document = json.loads(capsys.readouterr().out)
    assert document["text"] == "a = 1\n\nb =\n\nand \x1b[31m so on"
    assert [t["text"] for t in document["thoughts"]] == ["a = 1\n\n", "b =\n\n"]
    assert service.requests == [pb.GetTraceRequest(name=f"trees/{TREE_ID}/nodes/3", own_only=True)]


def test_a_long_line_of_a_trace_stays_a_line(service: ScriptedService, capsys: Capture) -> None:
    line = "x " * 5000 + "x"
    service.replies["GetTrace"] = [
        [pb.GetTraceResponse(node=pb.Node(number=1)), pb.GetTraceResponse(text=line)]
    ]

    assert main(["tree", "text", TREE_ID, "1"]) == exits.OK
    assert capsys.readouterr().out == line + "\n"


def test_a_node_that_cannot_be(capsys: Capture) -> None:
    assert main(["tree", "text", TREE_ID, "-1"]) == exits.USAGE
    assert "node: -1 is not in" in capsys.readouterr().err


# ---- tree watch


def test_tree_watch_prints_a_line_for_each_event(service: ScriptedService, capsys: Capture) -> None:
    running, ended = told("1-1", pb.TREE_STATE_RUNNING), told("1-3", pb.TREE_STATE_SUCCEEDED)
    service.replies["WatchTree"] = [[running, LOST], [told("1-2"), ended]] * 2

    assert main(["tree", "watch", TREE_ID, "--after", "1-0"]) == exits.OK
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines] == ["1-1", "1-2", "1-3"]
    assert lines[-1].endswith("search succeeded")

    assert main(["tree", "watch", TREE_ID, "--json"]) == exits.OK
    documents = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [d["kind"] for d in documents] == ["tree", "node", "tree"]
    assert [r.after_event_id for r in service.requests] == ["1-0", "1-1", "", "1-1"]


def test_tree_watch_that_comes_too_late(service: ScriptedService, capsys: Capture) -> None:
    service.replies["WatchTree"] = [[TRIMMED]]

    assert main(["tree", "watch", TREE_ID, "--after", "1-0"]) == exits.USAGE
    assert "OUT_OF_RANGE/EVENTS_TRIMMED" in capsys.readouterr().err


EVENTS = [
    (results.TreeTransition("1-1", None, results.TreeState.FAILED, "no\nway"), "search failed (no way)"),
    (
        results.NodeTransition("1-1", None, 3, None, results.NodeState.PENDING, 1, ""),
        "trace 3 pending, a branch of 1",
    ),
    (
        results.NodeTransition("1-1", None, 3, None, results.NodeState.PENDING, None, ""),
        "trace 3 pending, a root",
    ),
    (
        results.NodeTransition("1-1", None, 3, results.NodeState.LIVE, results.NodeState.PRUNED, None, "K"),
        "trace 3 live → pruned (K)",
    ),
    (
        results.Round("1-1", None, 2, 48, 24, 20, 3, 0.5, (4, 5), ()),
        "tournament 2: capacity 24 (20 live, 3 ghosts), KV use 50%; pruned 4 5; branched none",
    ),
    (
        results.Progress("1-1", None, results.TreeCounts(nodes=2, live=1), results.TokenUsage(generated=9)),
        "2 nodes, 1 live, 0 finished, 9 tokens",
    ),
    (results.TreeEvent("1-1", None), "an event that this version does not know"),
]


@pytest.mark.parametrize(("event", "line"), EVENTS)
def test_events_in_words(event: results.TreeEvent, line: str) -> None:
    assert event_line(event) == f"-  1-1  {line}"
    assert json.loads(event_object(event))["event_id"] == "1-1"


# ---- tree delete


def test_tree_delete(service: ScriptedService, capsys: Capture) -> None:
    service.replies["DeleteTree"] = [
        StatusError(grpc.StatusCode.FAILED_PRECONDITION, "TREE_NOT_ENDED", "it runs"),
        pb.DeleteTreeResponse(),
    ]

    assert main(["tree", "delete", TREE_ID]) == exits.USAGE
    assert "TREE_NOT_ENDED" in capsys.readouterr().err
    assert main(["tree", "delete", TREE_ID, "--force"]) == exits.OK
    assert capsys.readouterr().out == f"deleted {TREE_ID}\n"
    assert [r.force for r in service.requests] == [False, True]


# ---- the service


def test_load(service: ScriptedService, capsys: Capture) -> None:
    busy = pb.GetLoadResponse(
        queued_trees=2,
        max_queued_trees=64,
        running_trees=1,
        workers=1,
        slots=8,
        free_slots=3,
        waiting_traces=5,
        kv_use=0.25,
    )
    busy.oldest_wait.FromMilliseconds(1500)
    service.replies["GetLoad"] = [busy, pb.GetLoadResponse(max_queued_trees=64), busy]

    assert main(["load"]) == exits.OK
    assert capsys.readouterr().out == (
        "queue    2 of at most 64 searches, the first for 1.5 s\n"
        "running  1 search\n"
        "workers  1: 3 of 8 slots free, 5 traces waiting, KV use 25% at most\n"
    )
    assert main(["load"]) == exits.OK
    assert capsys.readouterr().out == "queue    0 of at most 64 searches\nrunning  0 searches\nworkers  0\n"
    assert main(["load", "--json"]) == exits.OK
    assert json.loads(capsys.readouterr().out)["oldest_wait"] == 1.5


def test_workers(service: ScriptedService, capsys: Capture) -> None:
    worker = pb.Worker(name="workers/w[1]", state=2, model="tiny", slots=8, free_slots=3, max_context=1024)
    found = pb.ListWorkersResponse(workers=[worker])
    service.replies["ListWorkers"] = [found, found, pb.ListWorkersResponse()]

    assert main(["workers"]) == exits.OK
    shown = capsys.readouterr().out
    for text in ("w[1]", "draining", "tiny", "3 of 8", "1,024"):
        assert text in shown
    assert main(["workers", "--json"]) == exits.OK
    assert json.loads(capsys.readouterr().out)[0]["state"] == "draining"
    assert main(["workers"]) == exits.OK
    assert capsys.readouterr().out == "no decoder worker is connected\n"
