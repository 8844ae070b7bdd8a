"""Every call of every service, driven over a real channel, good and bad; a new one cannot be forgotten.

The workers here are scripted; what ScorerService is asked, and refuses, is driven where its server is.
"""

from __future__ import annotations

import asyncio
import dataclasses
import importlib
import math
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message

import thoughtbeam.v1
from gateway import page_tokens
from gateway.config import GatewayConfig
from tests.integration.gateway.harness import (
    PATIENCE,
    Gateway,
    eventually,
    refused,
    request,
    running_gateway,
)
from tests.integration.gateway.scripted_worker import ScriptedWorker, scripted_worker
from thoughtbeam.v1 import reasoning_pb2 as pb
from thoughtbeam.v1 import reasoning_pb2_grpc, work_pb2, work_pb2_grpc

ROOT = Path(__file__).parents[3]
UNKNOWN = "6f1d1c9e-3f0a-4c55-9a5e-0c6b7b1f2a3d"


@dataclass(frozen=True, slots=True)
class World:
    """A service in use: a worker without credit, one without a scorer, an ended tree, one that waits."""

    gateway: Gateway
    worker: ScriptedWorker
    ended: str
    waiting: str

    async def call(self, rpc: str, message: Message, *more: Message) -> list[Any]:
        """All messages that a call answers with; more: further requests of a stream."""
        service, method = rpc.rsplit(".", 1)
        stub = STUBS[service](self.gateway.channel)
        async with asyncio.timeout(PATIENCE):
            if rpc in STREAMED_REQUESTS:
                call = getattr(stub, method)()
                for one in (message, *more):
                    await call.write(one)
                await call.done_writing()
            else:
                call = getattr(stub, method)(message)
                if not hasattr(call, "read"):
                    return [await call]
            replies = []
            while (reply := await call.read()) is not grpc.aio.EOF:
                replies.append(reply)
            return replies


Request = Callable[[World], Message | Awaitable[Message]]


@dataclass(frozen=True, slots=True)
class Bad:
    """A request that is refused. field: the only one that is named; "": none."""

    request: Request
    code: str
    reason: str
    field: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """One call. good: drives it as it is meant to be, and asserts. bad: by what is wrong."""

    good: Callable[[World], Awaitable[None]]
    bad: Mapping[str, Bad]


def field(name: str, bad: Request) -> Bad:
    return Bad(bad, "INVALID_ARGUMENT", "INVALID_FIELD", name)


def unknown(bad: Request) -> Bad:
    return Bad(bad, "NOT_FOUND", "TREE_NOT_FOUND")


def page(kind: Callable[..., Message], foreign: Request | None = None, **named: str) -> dict[str, Bad]:
    """What is wrong with a page of any list."""
    return {
        "negative page size": field("page_size", lambda w: kind(page_size=-1, **named)),
        "invented token": field("page_token", lambda w: kind(page_token="AAAA", **named)),
        "token of a place that is none": field(
            "page_token", lambda w: kind(page_token=page_tokens.encode(_listing(kind, named), ""), **named)
        ),
        "token that is none": field("page_token", lambda w: kind(page_token="\N{SNOWMAN}", **named)),
        "foreign token": field("page_token", lambda w: _with_foreign_token(w, kind(**named))),
    }


def _listing(kind: Callable[..., Message], named: Mapping[str, str]) -> str:
    if kind is pb.ListNodesRequest:
        return f"{named['parent']}/nodes"
    return {pb.ListTreesRequest: "trees", pb.ListWorkersRequest: "workers"}[kind]


async def _with_foreign_token(world: World, message: Any) -> Message:
    """A page of one list, to be gone on with by the token of another."""
    if isinstance(message, pb.ListTreesRequest):
        parent = f"trees/{world.ended}"
        token = (await world.call(NODES, pb.ListNodesRequest(parent=parent, page_size=1)))[0].next_page_token
    else:
        token = (await world.call(TREES, pb.ListTreesRequest(page_size=1)))[0].next_page_token
    assert token
    message.page_token = token
    return message


# ---- bad searches, for Reason and Submit

Started = type[pb.ReasonRequest] | type[pb.SubmitRequest]


def searches(kind: Started) -> dict[str, Bad]:
    def bad(name: str, **search: Any) -> Bad:
        return field(name, lambda w: ask(kind, **search))

    def parameter(name: str, value: Any) -> Bad:
        return bad(f"search.parameters.{name}", parameters={name: value})

    def sampling(name: str, value: Any) -> Bad:
        return bad(f"search.sampling.{name}", sampling=pb.Sampling(**{name: value}))

    return {
        "no question": bad("search.question", question=" "),
        "a question that is too long": bad("search.question", question="x" * 1_000_001),
        "no messages": bad("search.conversation.messages", conversation=pb.Conversation()),
        "a role": bad("search.conversation.messages[0].role", conversation=talk("tool", "user")),
        "an answer last": bad("search.conversation.messages[1].role", conversation=talk("user", "assistant")),
        "a model": bad("search.model", model="unheard-of"),
        "a policy": bad("search.policy", policy="beam"),
        "no policy": bad("search.policy", policy=""),
        "a profile": bad("search.profile", profile="huge"),
        "a scorer": bad("search.scorer", scorer="mlp"),
        "a parameter": parameter("J", 1),
        "a negative parameter": parameter("K", -1),
        "a broken parameter": parameter("K", 1.5),
        "NaN": parameter("K", math.nan),
        "infinity": parameter("C", math.inf),
        "a list for a parameter": parameter("K", [1]),
        "a capacity above the worker's": parameter("C", 65),
        "NaN degrees": sampling("temperature", math.nan),
        "cold": sampling("temperature", -0.1),
        "no probability": sampling("top_p", 0.0),
        "no tokens to choose from": sampling("top_k", 0),
        "a trace as long as the context": bad(
            "search.budgets.trace_tokens", budgets=pb.Budgets(trace_tokens=1024)
        ),
        "a deadline in the past": bad("search.budgets.deadline", deadline=-1),
        "a deadline in a week": bad("search.budgets.deadline", deadline=7 * 24 * 3600),
        "an answer mode": bad("search.answer_mode", answer_mode=99),
        "too many messages": bad("search.conversation.messages", conversation=talk(*["user"] * 1001)),
        "a pattern that contradicts itself": bad(
            "search.answer_regex", answer_mode=pb.ANSWER_MODE_REGEX, answer_regex="(?a)(?u)x"
        ),
        "a broken pattern": bad("search.answer_regex", answer_mode=pb.ANSWER_MODE_REGEX, answer_regex="("),
        "a pattern without its mode": bad("search.answer_regex", answer_regex="(a)"),
        "a request id": bad("request_id", request_id="1"),
        "a request id of another search": Bad(
            lambda w: ask(kind, request_id=w.waiting, question="And 6 x 8?"),
            "ALREADY_EXISTS",
            "REQUEST_ID_REUSED",
        ),
        "no scorer": Bad(lambda w: ask(kind, model="bare"), "FAILED_PRECONDITION", "NO_SCORER"),
    }


def ask(kind: Started, **search: Any) -> pb.ReasonRequest | pb.SubmitRequest:
    asked = request(**search)
    return kind(search=asked.search, request_id=asked.request_id)


def talk(*roles: str) -> pb.Conversation:
    return pb.Conversation(messages=[pb.ChatMessage(role=role, content="x") for role in roles])


# ---- what each call does when all is well


async def reason(world: World) -> None:
    answering = asyncio.create_task(world.gateway.ask(request()))
    await world.worker.grant(2)
    for _ in range(2):  # one waits already
        await (await world.worker.take()).answer()
    answer = await answering
    assert answer.result is not None
    assert answer.result.answer.text == "42"
    assert answer.events[-1].tree.state == pb.TREE_STATE_SUCCEEDED


async def submit(world: World) -> None:
    asked = request()
    [reply] = await world.call(SUBMIT, pb.SubmitRequest(search=asked.search, request_id=asked.request_id))
    assert (reply.tree.name, reply.tree.state) == (f"trees/{asked.request_id}", pb.TREE_STATE_QUEUED)


async def watch_tree(world: World) -> None:
    replies = await world.call(WATCH, pb.WatchTreeRequest(name=f"trees/{world.ended}"))
    whole = [reply.event.event_id for reply in replies]
    assert replies[0].event.tree.state == pb.TREE_STATE_QUEUED
    assert replies[-1].event.tree.state == pb.TREE_STATE_SUCCEEDED
    rest = await world.call(WATCH, pb.WatchTreeRequest(name=f"trees/{world.ended}", after_event_id=whole[3]))
    assert [reply.event.event_id for reply in rest] == whole[4:]


async def get_tree(world: World) -> None:
    [ended] = await world.call(GET_TREE, pb.GetTreeRequest(name=f"trees/{world.ended}"))
    [waiting] = await world.call(GET_TREE, pb.GetTreeRequest(name=f"trees/{world.waiting}"))
    assert (ended.tree.state, ended.tree.result.answer.text) == (pb.TREE_STATE_SUCCEEDED, "42")
    assert waiting.tree.state == pb.TREE_STATE_QUEUED
    assert waiting.tree.last_event_id


async def list_trees(world: World) -> None:
    [first] = await world.call(TREES, pb.ListTreesRequest(page_size=1))
    [second] = await world.call(TREES, pb.ListTreesRequest(page_token=first.next_page_token))
    assert [tree.name for reply in (first, second) for tree in reply.trees] == [
        f"trees/{world.waiting}",
        f"trees/{world.ended}",
    ]


async def list_nodes(world: World) -> None:
    parent = f"trees/{world.ended}"
    [first] = await world.call(NODES, pb.ListNodesRequest(parent=parent, page_size=2))
    [second] = await world.call(NODES, pb.ListNodesRequest(parent=parent, page_token=first.next_page_token))
    assert [node.name for reply in (first, second) for node in reply.nodes] == [
        f"{parent}/nodes/{number}" for number in (1, 2, 3)
    ]


async def get_trace(world: World) -> None:
    parts = await world.call(GET_TRACE, pb.GetTraceRequest(name=f"trees/{world.ended}/nodes/2"))
    assert parts[0].node.number == 2
    assert "".join(part.text for part in parts) == "so\n\n"


async def get_result(world: World) -> None:
    replies = await world.call(GET_RESULT, pb.GetResultRequest(name=f"trees/{world.ended}"))
    result = pb.Result.FromString(b"".join(reply.data for reply in replies))
    assert result == (await world.gateway.get(world.ended)).result


async def cancel_tree(world: World) -> None:
    for _ in range(2):  # cancelling what has ended changes nothing
        [reply] = await world.call(CANCEL, pb.CancelTreeRequest(name=f"trees/{world.waiting}"))
        assert reply.tree.state == pb.TREE_STATE_CANCELLED


async def delete_tree(world: World) -> None:
    for tree_id, force in ((world.ended, False), (world.waiting, True)):
        await world.call(DELETE, pb.DeleteTreeRequest(name=f"trees/{tree_id}", force=force))
        assert (await refused(world.gateway.get(tree_id))).reason == "TREE_NOT_FOUND"


async def list_policies(world: World) -> None:
    [reply] = await world.call(POLICIES, pb.ListPoliciesRequest())
    assert [policy.name for policy in reply.policies] == ["gambit", "vanilla"]


async def get_load(world: World) -> None:
    [reply] = await world.call(LOAD, pb.GetLoadRequest())
    assert (reply.queued_trees, reply.workers, reply.slots) == (1, 1, 8)


async def list_workers(world: World) -> None:
    [reply] = await world.call(WORKERS, pb.ListWorkersRequest())
    assert [(worker.name, worker.slots) for worker in reply.workers] == [("workers/announced", 8)]


async def work(world: World) -> None:
    replies = await world.call(WORK, HELLO, work_pb2.WorkRequest(draining=work_pb2.Draining()))
    assert [reply.WhichOneof("message") for reply in replies] == ["welcome"]
    # and with credit there is an assignment
    await world.worker.grant()
    assert (await world.worker.take()).tree_id == world.waiting


HELLO = work_pb2.WorkRequest(
    hello=work_pb2.Hello(worker="third", model="third", slots=1, max_context=1, max_capacity=1)
)
REASONING = pb.DESCRIPTOR.services_by_name["ReasoningService"].full_name
(
    REASON,
    SUBMIT,
    WATCH,
    GET_TREE,
    TREES,
    NODES,
    GET_TRACE,
    GET_RESULT,
    CANCEL,
    DELETE,
    POLICIES,
    LOAD,
    WORKERS,
) = (
    f"{REASONING}.{name}"
    for name in (
        *("Reason", "Submit", "WatchTree", "GetTree", "ListTrees", "ListNodes", "GetTrace", "GetResult"),
        *("CancelTree", "DeleteTree", "ListPolicies", "GetLoad", "ListWorkers"),
    )
)
WORK = f"{work_pb2.DESCRIPTOR.services_by_name['WorkService'].full_name}.Work"
STUBS: Mapping[str, Any] = {
    REASONING: reasoning_pb2_grpc.ReasoningServiceStub,
    WORK.rsplit(".", 1)[0]: work_pb2_grpc.WorkServiceStub,
}
STREAMED_REQUESTS = (WORK,)


def named(kind: Callable[..., Message], node: str = "") -> dict[str, Bad]:
    """What is wrong with the name of a tree, or of a node in it."""
    return {
        "no name": field("name", lambda w: kind()),
        "a name of something else": field("name", lambda w: kind(name=f"workers/{UNKNOWN}{node}")),
        "a name with something more": field("name", lambda w: kind(name=f"trees/{UNKNOWN}{node}/x")),
        "an unknown tree": unknown(lambda w: kind(name=f"trees/{UNKNOWN}{node}")),
    }


CONTRACT: Mapping[str, Entry] = {
    REASON: Entry(
        reason,
        searches(pb.ReasonRequest)
        | {
            "a place that is no event": field(
                "after_event_id",
                lambda w: pb.ReasonRequest(search=request().search, after_event_id="5"),
            ),
        },
    ),
    SUBMIT: Entry(submit, searches(pb.SubmitRequest)),
    WATCH: Entry(
        watch_tree,
        named(pb.WatchTreeRequest)
        | {
            "a place that is no event": field(
                "after_event_id",
                lambda w: pb.WatchTreeRequest(name=f"trees/{w.ended}", after_event_id="x"),
            ),
            "a place in other digits": field(
                "after_event_id",
                lambda w: pb.WatchTreeRequest(name=f"trees/{w.ended}", after_event_id="1\u0663-1"),
            ),
            "an event that it never had": Bad(
                lambda w: pb.WatchTreeRequest(name=f"trees/{w.ended}", after_event_id="1-999"),
                "OUT_OF_RANGE",
                "EVENTS_TRIMMED",
            ),
        },
    ),
    GET_TREE: Entry(get_tree, named(pb.GetTreeRequest)),
    TREES: Entry(list_trees, page(pb.ListTreesRequest)),
    NODES: Entry(
        list_nodes,
        page(pb.ListNodesRequest, parent=f"trees/{UNKNOWN}")
        | {
            "no parent": field("parent", lambda w: pb.ListNodesRequest()),
            "an unknown tree": unknown(lambda w: pb.ListNodesRequest(parent=f"trees/{UNKNOWN}")),
        },
    ),
    GET_TRACE: Entry(
        get_trace,
        named(pb.GetTraceRequest, "/nodes/1")
        | {
            "no number": field("name", lambda w: pb.GetTraceRequest(name=f"trees/{w.ended}/nodes/0")),
            "an unknown node": Bad(
                lambda w: pb.GetTraceRequest(name=f"trees/{w.ended}/nodes/4"), "NOT_FOUND", "NODE_NOT_FOUND"
            ),
        },
    ),
    GET_RESULT: Entry(
        get_result,
        named(pb.GetResultRequest)
        | {
            "a tree that waits": Bad(
                lambda w: pb.GetResultRequest(name=f"trees/{w.waiting}"),
                "FAILED_PRECONDITION",
                "TREE_NOT_ENDED",
            )
        },
    ),
    CANCEL: Entry(cancel_tree, named(pb.CancelTreeRequest)),
    DELETE: Entry(
        delete_tree,
        named(pb.DeleteTreeRequest)
        | {
            "a tree that waits": Bad(
                lambda w: pb.DeleteTreeRequest(name=f"trees/{w.waiting}"),
                "FAILED_PRECONDITION",
                "TREE_NOT_ENDED",
            )
        },
    ),
    POLICIES: Entry(list_policies, {}),
    LOAD: Entry(get_load, {}),
    WORKERS: Entry(list_workers, page(pb.ListWorkersRequest)),
    WORK: Entry(
        work,
        {
            "credit first": field("message", lambda w: work_pb2.WorkRequest(credit=work_pb2.Credit(trees=1))),
            "no name": field("hello.worker", lambda w: hello(worker="")),
            "no model": field("hello.model", lambda w: hello(model="")),
            "no slots": field("hello.slots", lambda w: hello(slots=0)),
            "no context": field("hello.max_context", lambda w: hello(max_context=0)),
            "no capacity": field("hello.max_capacity", lambda w: hello(max_capacity=0)),
        },
    ),
}
# Calls whose server is not the gateway, and the tests that drive them, good and bad.
ELSEWHERE = {
    f"thoughtbeam.v1.ScorerService.{name}": f"tests/integration/prm_worker/{test}.py"
    for name, test in {
        "Score": "test_score",
        "GetScorerInfo": "test_score",
        "DropTraces": "test_histories",
        "ScoreText": "test_process_reward",
    }.items()
}


def hello(**changed: Any) -> work_pb2.WorkRequest:
    message = work_pb2.WorkRequest()
    message.CopyFrom(HELLO)
    for name, value in changed.items():
        setattr(message.hello, name, value)
    return message


# ---- the tests


def calls() -> dict[str, Any]:
    """The descriptors of all calls of all services of ours, by full name."""
    modules = [
        importlib.import_module(f"thoughtbeam.v1.{path.stem}")
        for path in Path(thoughtbeam.v1.__path__[0]).glob("*_pb2.py")
    ]
    return {
        method.full_name: method
        for module in modules
        for service in module.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }


def test_every_call_has_an_entry() -> None:
    assert set(calls()) == {*CONTRACT, *ELSEWHERE}


def test_every_call_that_can_be_bad_is_driven_so() -> None:
    for rpc, entry in CONTRACT.items():
        assert bool(entry.bad) == bool(calls()[rpc].input_type.fields), rpc
    for rpc, path in ELSEWHERE.items():
        service, method = rpc.split(".")[-2:]
        text = (ROOT / path).read_text()
        assert f"{service}Stub" in text
        assert f".{method}(" in text
        assert "INVALID_ARGUMENT" in text or not calls()[rpc].input_type.fields


@asynccontextmanager
async def in_use(gateway: Gateway) -> AsyncIterator[World]:
    ended, waiting = request(), request()
    async with (
        scripted_worker(gateway.channel, gateway.store, "scored") as worker,
        scripted_worker(gateway.channel, gateway.store, "bare", "bare", scorer="") as _,
    ):
        await worker.grant()
        for asked in (ended, waiting):
            await gateway.stub.Submit(pb.SubmitRequest(search=asked.search, request_id=asked.request_id))
            if asked is ended:
                await (await worker.take()).long_search()
        await gateway.store.announce_worker("announced", {"slots": "8"}, 3600)

        async def known() -> bool:
            bare = ask(pb.SubmitRequest, model="bare", request_id=str(uuid.uuid4()), deadline=-1)
            error = await refused(gateway.stub.Submit(bare))
            return [v.field for v in error.violations] == ["search.budgets.deadline"]

        await eventually(known)
        yield World(gateway, worker, ended.request_id, waiting.request_id)


@pytest.mark.parametrize("rpc", CONTRACT)
async def test_good(gateway: Gateway, rpc: str) -> None:
    async with in_use(gateway) as world:
        await CONTRACT[rpc].good(world)


@pytest.mark.parametrize("rpc", [rpc for rpc, entry in CONTRACT.items() if entry.bad])
async def test_bad(gateway: Gateway, rpc: str) -> None:
    async with in_use(gateway) as world:
        trees = len(await gateway.store.list_trees(100))
        for what, bad in CONTRACT[rpc].bad.items():
            made = bad.request(world)
            message = made if isinstance(made, Message) else await made
            error = await refused(world.call(rpc, message))

            assert (error.code.name, error.reason) == (bad.code, bad.reason), what
            fields = [violation.field for violation in error.violations]
            assert fields == ([bad.field] if bad.field else []), what
            assert all(violation.description for violation in error.violations), what
            assert error.message, what
        # nothing came of it, and the next one works
        assert len(await gateway.store.list_trees(100)) == trees
        await CONTRACT[rpc].good(world)


async def test_without_a_store_every_call_that_needs_it_says_so(config: GatewayConfig) -> None:
    name, node = f"trees/{UNKNOWN}", f"trees/{UNKNOWN}/nodes/1"
    asked: dict[str, Message] = {
        REASON: request(),
        SUBMIT: pb.SubmitRequest(search=request().search),
        WATCH: pb.WatchTreeRequest(name=name),
        GET_TREE: pb.GetTreeRequest(name=name),
        TREES: pb.ListTreesRequest(),
        NODES: pb.ListNodesRequest(parent=name),
        GET_TRACE: pb.GetTraceRequest(name=node),
        GET_RESULT: pb.GetResultRequest(name=name),
        CANCEL: pb.CancelTreeRequest(name=name),
        DELETE: pb.DeleteTreeRequest(name=name, force=True),
        LOAD: pb.GetLoadRequest(),
        WORKERS: pb.ListWorkersRequest(),
    }
    assert {*asked, POLICIES, WORK} == set(CONTRACT)
    async with running_gateway(dataclasses.replace(config, redis_url="redis://127.0.0.1:1")) as gateway:
        world = World(gateway, None, UNKNOWN, UNKNOWN)  # type: ignore[arg-type]
        errors = await asyncio.gather(*(refused(world.call(rpc, each)) for rpc, each in asked.items()))

    assert {(error.code.name, error.reason) for error in errors} == {("UNAVAILABLE", "STORE_UNAVAILABLE")}
