from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from tests.unit.thoughtbeam.scripted_service import ScriptedService, node_event, result, serving
from thoughtbeam import UnavailableError, errors
from thoughtbeam.cli import exits, serve
from thoughtbeam.cli.main import code_of, explain, main, parser
from thoughtbeam.cli.options import parameter
from thoughtbeam.cli.policies import allowed
from thoughtbeam.results import PolicyParameter
from thoughtbeam.runtime.status import StatusError, Violation, invalid
from thoughtbeam.supervision.state import StateDirectory
from thoughtbeam.v1 import reasoning_pb2 as pb

Capture = pytest.CaptureFixture[str]
TREE_ID = "7b1f0bd4-4a0e-4bd3-8c7d-6f7a52c5d2f1"


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedService]:
    scripted = ScriptedService()
    with serving(scripted) as endpoint:
        monkeypatch.setenv("THOUGHTBEAM_ENDPOINT", endpoint)
        yield scripted


# ---- solve


def test_solve_prints_the_answer(service: ScriptedService, capsys: Capture) -> None:
    service.streams = [[node_event("1-1", 1), result()]]

    assert main(["solve", "6 * 7?"]) == exits.OK

    output = capsys.readouterr()
    assert "Answer: 42" in output.out
    assert "4 nodes = 3 roots + 1 branch = 3 finished + 1 pruned + 0 cancelled" in output.out
    assert output.err == ""


def test_solve_as_json_prints_one_document_and_nothing_else(
    service: ScriptedService, capsys: Capture
) -> None:
    service.streams = [[node_event("1-1", 1), result()]]

    assert main(["solve", "6 * 7?", "--json"]) == exits.OK

    output = capsys.readouterr()
    document = json.loads(output.out)
    assert output.err == ""
    assert document["answer"] == {
        "text": "42",
        "weight": 1.5,
        "share": 0.75,
        "node": 2,
        "final_text": "It is \\boxed{42}.",
    }
    assert document["counts"]["nodes"] == 4
    assert document["votes"][0]["nodes"] == [2, 1]
    assert document["state"] == "succeeded"


def test_solve_passes_everything_on(service: ScriptedService) -> None:
    service.streams = [[result()]]

    arguments = ["--policy", "best_of_n", "--profile", "tiny", "-p", "N=8", "-p", "score=last", "--seed", "3"]
    arguments += ["--answer-mode", "integer", "--temperature", "0.5", "--deadline", "9", "--max-tokens", "5"]
    arguments += ["--system", "Be brief.", "--request-id", TREE_ID, "--model", "tiny_reasoner"]
    assert main(["solve", "6 * 7?", *arguments]) == exits.OK

    (request,) = service.requests
    search = request.search
    assert [(m.role, m.content) for m in search.conversation.messages] == [
        ("system", "Be brief."),
        ("user", "6 * 7?"),
    ]
    assert (search.policy, search.profile, search.seed, search.model) == (
        "best_of_n",
        "tiny",
        3,
        "tiny_reasoner",
    )
    assert dict(search.parameters) == {"N": 8, "score": "last"}
    assert search.answer_mode == pb.ANSWER_MODE_INTEGER
    assert search.sampling.temperature == 0.5
    assert (search.budgets.deadline.seconds, search.budgets.tokens) == (9, 5)
    assert request.request_id == TREE_ID


def test_a_question_from_stdin(service: ScriptedService) -> None:
    service.streams = [[result()]]
    command = [sys.executable, "-m", "thoughtbeam.cli.main", "solve", "-"]
    subprocess.run(command, input="6 * 7?\n", text=True, check=True, capture_output=True)

    assert service.requests[0].search.question == "6 * 7?"


def test_no_answer_has_an_exit_code_of_its_own(service: ScriptedService, capsys: Capture) -> None:
    nothing = pb.Result(name="trees/t1", counts=pb.TreeCounts(nodes=1, finished=1))
    service.streams = [[pb.ReasonResponse(result=nothing)]] * 2
    cut = pb.Node(number=1, state=pb.NODE_STATE_FINISHED, finish_reason="length")
    service.replies["GetTree"] = [pb.GetTreeResponse()]
    service.replies["ListNodes"] = [pb.ListNodesResponse(nodes=[cut])]

    assert main(["solve", "6 * 7?"]) == exits.NO_ANSWER
    assert "No answer: the only finished trace was cut at the length limit" in capsys.readouterr().out

    # when the tree cannot be read, the result is shown all the same
    assert main(["solve", "6 * 7?"]) == exits.NO_ANSWER
    assert "No answer: the only finished trace gave none" in capsys.readouterr().out


def test_a_wrong_request_is_one_line(service: ScriptedService, capsys: Capture) -> None:
    service.streams = [[invalid(Violation("search.parameters.K", "99 is not in [0, 12]"))]]

    assert main(["solve", "6 * 7?", "-p", "K=99"]) == exits.USAGE

    output = capsys.readouterr()
    assert output.out == ""
    assert output.err == (
        "thoughtbeam: search.parameters.K: 99 is not in [0, 12] (INVALID_ARGUMENT/INVALID_FIELD)\n"
    )


def test_nothing_listens(capsys: Capture) -> None:
    with serving(ScriptedService()) as endpoint:
        pass

    assert main(["solve", "6 * 7?", "--endpoint", endpoint]) == exits.UNREACHABLE

    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"thoughtbeam: nothing answers at {endpoint}; ")
    assert "thoughtbeam serve --local" in line
    assert "connect" not in line  # gRPC's own words


def test_ctrl_c_cancels_the_search(service: ScriptedService) -> None:
    # given a search that is under way
    under_way = threading.Event()
    service.streams = [[node_event("1-1", 1), under_way.set, lambda: time.sleep(1.0), result()]]
    service.replies["CancelTree"] = [
        pb.CancelTreeResponse(tree=pb.Tree(name=f"trees/{TREE_ID}", state=pb.TREE_STATE_CANCELLED))
    ]
    command = [sys.executable, "-m", "thoughtbeam.cli.main", "solve", "6 * 7?", "--request-id", TREE_ID]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as solving:
        assert under_way.wait(20.0)
        # when its user gives up
        solving.send_signal(signal.SIGINT)
        out, err = solving.communicate()

    # then it does not go on unseen
    assert solving.returncode == exits.INTERRUPTED
    assert out == ""
    assert err == f"interrupted; the search was cancelled: `thoughtbeam tree show {TREE_ID}`\n"
    assert service.requests[-1] == pb.CancelTreeRequest(name=f"trees/{TREE_ID}")


# ---- trees and policies


def trees(*ids: str) -> pb.ListTreesResponse:
    return pb.ListTreesResponse(
        trees=[
            pb.Tree(name=f"trees/{i}", state=pb.TREE_STATE_RUNNING, policy="gambit", question="6 * 7?")
            for i in ids
        ]
    )


def test_tree_list(service: ScriptedService, capsys: Capture) -> None:
    service.replies["ListTrees"] = [trees(TREE_ID, "other"), trees(TREE_ID, "other"), trees()]

    assert main(["tree", "list"]) == exits.OK
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert lines[1].split() == [TREE_ID[:8], "running", "gambit", "0", "0", "6", "*", "7?"]

    assert main(["tree", "list", "--json", "-n", "1"]) == exits.OK
    assert [t["id"] for t in json.loads(capsys.readouterr().out)] == [TREE_ID]

    assert main(["tree", "list"]) == exits.OK
    assert capsys.readouterr().out == "no searches are kept\n"


@pytest.mark.parametrize("wanted", [TREE_ID, TREE_ID[:6], None])
def test_tree_show(service: ScriptedService, capsys: Capture, wanted: str | None) -> None:
    service.replies = {
        "ListTrees": [trees(TREE_ID, "other")],
        "GetTree": [pb.GetTreeResponse(tree=trees(TREE_ID).trees[0])],
        "ListNodes": [pb.ListNodesResponse(nodes=[pb.Node(number=1, state=pb.NODE_STATE_LIVE)])],
    }

    assert main(["tree", "show", *([wanted] if wanted else []), "--json"]) == exits.OK

    document = json.loads(capsys.readouterr().out)
    assert document["id"] == TREE_ID
    assert [n["state"] for n in document["nodes"]] == ["live"]
    assert document["nodes"][0]["parent"] is None
    # what is not needed is not asked for
    listed = [request.page_size for request in service.requests if isinstance(request, pb.ListTreesRequest)]
    assert listed == {TREE_ID: [], TREE_ID[:6]: [1000], None: [1]}[wanted]


def test_tree_show_of_an_id_that_is_not_unique(service: ScriptedService, capsys: Capture) -> None:
    service.replies["ListTrees"] = [trees("aa1", "aa2", "b")]

    assert main(["tree", "show", "aa"]) == exits.USAGE
    assert "2 of the last 1000 searches begin with 'aa'" in capsys.readouterr().err


def test_a_tree_that_is_not_kept(service: ScriptedService, capsys: Capture) -> None:
    service.replies["GetTree"] = [StatusError(grpc.StatusCode.NOT_FOUND, "TREE_NOT_FOUND", "never created")]

    assert main(["tree", "show", TREE_ID]) == exits.USAGE
    assert "never created" in capsys.readouterr().err


@pytest.mark.parametrize("action", ["show", "cancel"])
def test_an_empty_id_names_no_search(action: str, capsys: Capture) -> None:
    with pytest.raises(SystemExit) as caught:
        parser().parse_args(["tree", action, ""])
    assert caught.value.code == exits.USAGE
    assert "names no search" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("state", "text"),
    [
        (pb.TREE_STATE_CANCELLED, "the search was cancelled"),
        (pb.TREE_STATE_RUNNING, "the search is being cancelled"),
        (pb.TREE_STATE_SUCCEEDED, "the search had already succeeded"),
    ],
)
def test_tree_cancel(
    service: ScriptedService, capsys: Capture, state: pb.TreeState.ValueType, text: str
) -> None:
    service.replies["ListTrees"] = [trees(TREE_ID, "other")]
    cancelled = pb.CancelTreeResponse(tree=pb.Tree(name=f"trees/{TREE_ID}", state=state))
    service.replies["CancelTree"] = [cancelled]

    assert main(["tree", "cancel", TREE_ID[:8]]) == exits.OK

    assert capsys.readouterr().out == f"{text}: `thoughtbeam tree show {TREE_ID}`\n"
    assert service.requests[-1] == pb.CancelTreeRequest(name=f"trees/{TREE_ID}")


def test_a_timeout_tells_how_to_end_the_search() -> None:
    error = errors.DeadlineExceededError("no reply within 3 s", reason="CLIENT_TIMEOUT", tree_id=TREE_ID)

    assert explain(error, "host:1") == (
        f"no reply within 3 s; the search may go on: look at it with `thoughtbeam tree show {TREE_ID}`, "
        f"end it with `thoughtbeam tree cancel {TREE_ID}`"
    )


def policies() -> pb.ListPoliciesResponse:
    gambit = pb.Policy(name="gambit", summary="prune [and] branch", source="2608.08020", needs_scores=True)
    parameter = gambit.parameters.add(
        name="C", description="capacity [C]", type="int", minimum=1, maximum=512
    )
    parameter.defaults["tiny"].number_value = 24
    return pb.ListPoliciesResponse(policies=[gambit, pb.Policy(name="vanilla", summary="one trace")])


def test_policies(service: ScriptedService, capsys: Capture) -> None:
    service.replies["ListPolicies"] = [policies()] * 4 + [pb.ListPoliciesResponse()]

    assert main(["policies"]) == exits.OK
    assert "prune [and] branch  (needs a scorer)" in capsys.readouterr().out

    assert main(["policies", "gambit"]) == exits.OK
    shown = capsys.readouterr().out
    assert "capacity [C]" in shown
    assert "1 to 512" in shown
    assert "24" in shown

    assert main(["policies", "gambit", "--json"]) == exits.OK
    assert json.loads(capsys.readouterr().out)["parameters"][0]["defaults"] == {"tiny": 24}

    assert main(["policies", "gambler"]) == exits.USAGE
    assert "known are gambit, vanilla" in capsys.readouterr().err

    assert main(["policies"]) == exits.OK
    assert "no decoder worker is connected" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("minimum", "maximum", "choices", "text"),
    [
        (1.0, 512.0, (), "1 to 512"),
        (0.0, None, (), "at least 0"),
        (None, 0.5, (), "at most 0.5"),
        (None, None, ("tree", "trace"), "tree | trace"),
        (None, None, (), ""),
    ],
)
def test_ranges_in_words(
    minimum: float | None, maximum: float | None, choices: tuple[str, ...], text: str
) -> None:
    assert allowed(PolicyParameter("C", "", "", "", "int", {}, minimum, maximum, choices)) == text


# ---- arguments, errors, stop


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("C=24", ("C", 24)),
        ("r=0.9", ("r", 0.9)),
        ("refill=False", ("refill", False)),
        ("refill=true", ("refill", True)),
        ("child_temperature=null", ("child_temperature", None)),
        ("vote=weighted", ("vote", "weighted")),
        ("x=a=b", ("x", "a=b")),
    ],
)
def test_parameters(text: str, value: tuple[str, object]) -> None:
    assert parameter(text) == value
    assert type(parameter(text)[1]) is type(value[1])


@pytest.mark.parametrize("text", ["C", "=24"])
def test_what_is_no_parameter(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="NAME=VALUE"):
        parameter(text)


@pytest.mark.parametrize("arguments", [[], ["serve"], ["solve"], ["tree"], ["solve", "q", "-p", "C"]])
def test_wrong_usage(arguments: list[str], capsys: Capture) -> None:
    with pytest.raises(SystemExit) as caught:
        parser().parse_args(arguments)
    assert caught.value.code == exits.USAGE
    assert "usage:" in capsys.readouterr().err


def test_every_command_explains_itself_and_its_exit_codes(capsys: Capture) -> None:
    for command in commands(parser(), []):
        with pytest.raises(SystemExit):
            parser().parse_args([*command, "--help"])
        text = " ".join(capsys.readouterr().out.split())
        assert exits.SUMMARY in text


def commands(found: argparse.ArgumentParser, path: list[str]) -> Iterator[list[str]]:
    """Every command, by the words that lead to it; not those that become another program."""
    if path == ["scorer"]:
        return
    groups = [a for a in found._actions if isinstance(a, argparse._SubParsersAction)]
    if not groups:
        yield path
    for group in groups:
        for name, command in group.choices.items():
            yield from commands(command, [*path, name])


def test_every_command_that_reads_speaks_json() -> None:
    silent = {"serve", "demo", "redis", "stop", "tree delete"}
    for path in commands(parser(), []):
        assert ("--json" in usage(path)) == (" ".join(path) not in silent), path


def usage(path: list[str]) -> str:
    found = parser()
    for name in path:
        (group,) = (a for a in found._actions if isinstance(a, argparse._SubParsersAction))
        found = group.choices[name]
    return found.format_usage()


def test_serve_tells_of_ctrl_c_only_where_it_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    with open(os.devnull) as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        assert not serve._in_foreground()


def test_every_argument_is_explained() -> None:
    waiting, seen = [parser()], 0
    while waiting:
        for action in waiting.pop()._actions:
            if isinstance(action, argparse._SubParsersAction):
                waiting.extend(action.choices.values())
            else:
                seen += 1
                assert action.help, action.option_strings or action.dest
    assert seen > 40


def test_errors_say_what_to_do() -> None:
    full = errors.ResourceExhaustedError("the queue is full", reason="QUEUE_FULL", retry_after=2.0)

    assert explain(full, "host:1") == "the queue is full; try again in 2 s (RESOURCE_EXHAUSTED/QUEUE_FULL)"
    assert "serve --local" in explain(UnavailableError("connection refused"), "host:1")
    assert "serve --local" not in explain(UnavailableError("no store", reason="STORE_UNAVAILABLE"), "host:1")
    assert code_of(full) == exits.FAILED


def test_stop_when_nothing_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setenv("THOUGHTBEAM_HOME", str(tmp_path))

    assert main(["stop"]) == exits.OK
    assert capsys.readouterr().out == (
        f"nothing runs in {tmp_path}; for services of another directory, name it in THOUGHTBEAM_HOME\n"
    )


def test_stop_ends_the_launcher_and_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setenv("THOUGHTBEAM_HOME", str(tmp_path))
    launcher = (
        "import time\n"
        "from thoughtbeam.supervision.signals import StopRequestedError, StopSignals\n"
        "from thoughtbeam.supervision.state import StateDirectory\n"
        "with StopSignals() as signals, StateDirectory().locked():\n"
        "    print('up', flush=True)\n"
        "    try:\n"
        "        signals.wait(30)\n"
        "    except StopRequestedError:\n"
        "        time.sleep(0.3)\n"
    )
    with subprocess.Popen([sys.executable, "-c", launcher], stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "up\n"
        assert StateDirectory().holder() == running.pid

        assert main(["stop"]) == exits.OK

        assert StateDirectory().holder() is None
    assert running.returncode == 0
    assert "stopped the services" in capsys.readouterr().out


def test_a_reader_that_stops_reading_is_no_error(service: ScriptedService) -> None:
    service.replies["ListTrees"] = [trees(*(f"{n:036}" for n in range(1000)))]
    command = [sys.executable, "-m", "thoughtbeam.cli.main", "tree", "list", "-n", "1000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ) as listing:
        assert listing.stdout is not None
        assert listing.stderr is not None
        listing.stdout.readline()
        listing.stdout.close()
        assert listing.stderr.read() == b""
