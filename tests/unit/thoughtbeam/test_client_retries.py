"""What is repeated, how often, and after how long: for every method, and against gRPC's own ideas."""

from __future__ import annotations

import json
import time
from typing import Any

import grpc
import pytest

import thoughtbeam
from tests.unit.thoughtbeam.calls import FAST, Calls
from tests.unit.thoughtbeam.scripted_service import LOST, ScriptedService, pushed_back, result
from thoughtbeam import AsyncClient, Client, Retry
from thoughtbeam._channel import channel_options
from thoughtbeam.runtime.status import StatusError
from thoughtbeam.v1 import reasoning_pb2 as pb
from thoughtbeam.v1.reasoning_pb2_grpc import ReasoningServiceStub

ENDED = pb.GetTreeResponse(
    tree=pb.Tree(name="trees/t1", state=pb.TREE_STATE_SUCCEEDED, result=result().result)
)
# by method of a client: the arguments, the RPC that it begins with, and a reply that ends it well
METHODS: dict[str, tuple[tuple[Any, ...], dict[str, Any], str, Any]] = {
    "solve": (("6 * 7?",), {"policy": "gambit"}, "Reason", [result()]),
    "stream": (("6 * 7?",), {"policy": "gambit"}, "Reason", [result()]),
    "submit": (("6 * 7?",), {"policy": "gambit"}, "Submit", pb.SubmitResponse()),
    "watch": (("t1",), {}, "WatchTree", []),
    "wait": (("t1",), {}, "GetTree", ENDED),
    "result": (("t1",), {}, "GetResult", []),
    "trace": (("t1", 1), {}, "GetTrace", []),
    "tree": (("t1",), {}, "GetTree", StatusError(grpc.StatusCode.NOT_FOUND, "TREE_NOT_FOUND", "gone")),
    "trees": ((), {}, "ListTrees", pb.ListTreesResponse()),
    "cancel": (("t1",), {}, "CancelTree", pb.CancelTreeResponse()),
    "delete": (("t1",), {}, "DeleteTree", pb.DeleteTreeResponse()),
    "policies": ((), {}, "ListPolicies", pb.ListPoliciesResponse()),
    "load": ((), {}, "GetLoad", pb.GetLoadResponse()),
    "workers": ((), {}, "ListWorkers", pb.ListWorkersResponse()),
}
NOT_RETRIED = [c for c in grpc.StatusCode if c not in (grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE)]


def script(service: ScriptedService, rpc: str, *replies: Any) -> None:
    """Replies, one a call; an error of a stream is what it begins with."""
    method = pb.DESCRIPTOR.services_by_name["ReasoningService"].methods_by_name[rpc]
    said = [[r] if method.server_streaming and isinstance(r, StatusError) else r for r in replies]
    if rpc == "Reason":
        service.streams = said
    else:
        service.replies[rpc] = said


def test_every_method_is_here() -> None:
    assert METHODS.keys() == {name for name in vars(Client) if not name.startswith("_")} - {"close"}


@pytest.mark.parametrize("method", METHODS)
async def test_unavailable_is_retried_with_the_same_request(
    calls: Calls, service: ScriptedService, endpoint: str, method: str
) -> None:
    arguments, options, rpc, reply = METHODS[method]
    script(service, rpc, LOST, LOST, reply)

    if isinstance(reply, StatusError):
        with pytest.raises(thoughtbeam.ApiError, match=reply.reason):
            await calls.call(endpoint, method, *arguments, **options)
    else:
        await calls.call(endpoint, method, *arguments, **options)

    assert len(service.requests) == 3
    assert all(request == service.requests[0] for request in service.requests)


@pytest.mark.parametrize("code", NOT_RETRIED, ids=lambda code: str(code.name))
async def test_nothing_else_is_retried(
    calls: Calls, service: ScriptedService, endpoint: str, code: grpc.StatusCode
) -> None:
    for method, (arguments, options, rpc, _) in METHODS.items():
        service.requests.clear()
        script(service, rpc, *[StatusError(code, "WHY", "no", retry_after=0.01)] * 2)
        with pytest.raises(thoughtbeam.ApiError, match="WHY") as caught:
            await calls.call(endpoint, method, *arguments, **options)
        assert caught.value.code is code
        assert len(service.requests) == 1, method


async def test_a_delay_in_the_trailers_is_kept(calls: Calls, service: ScriptedService, endpoint: str) -> None:
    service.replies["GetLoad"] = [pushed_back("400"), pb.GetLoadResponse()]

    started = time.monotonic()
    await calls.call(endpoint, "load")

    assert time.monotonic() - started >= 0.4


@pytest.mark.parametrize("value", ["-1", "never"])
async def test_a_service_that_asks_for_no_retry(
    calls: Calls, service: ScriptedService, endpoint: str, value: str
) -> None:
    service.replies["GetLoad"] = [pushed_back(value), pb.GetLoadResponse()]

    with pytest.raises(thoughtbeam.UnavailableError) as caught:
        await calls.call(endpoint, "load")

    assert caught.value.retry_after == float("inf")
    assert len(service.requests) == 1


async def test_a_user_is_told_of_each_retry(service: ScriptedService, endpoint: str) -> None:
    told: list[Retry] = []
    service.streams = [[LOST], [LOST], [result()]] * 2

    with Client(endpoint, retry=FAST, on_retry=told.append) as client:
        client.solve("6 * 7?", policy="gambit")
    async with AsyncClient(endpoint, retry=FAST, on_retry=told.append) as aio_client:
        await aio_client.solve("6 * 7?", policy="gambit")

    assert [r.number for r in told] == [1, 2, 1, 2]
    assert all(isinstance(r.error, thoughtbeam.UnavailableError) for r in told)


POLICY = json.dumps(
    {
        "methodConfig": [
            {
                "name": [{}],
                "retryPolicy": {
                    "maxAttempts": 5,
                    "initialBackoff": "0.01s",
                    "maxBackoff": "0.1s",
                    "backoffMultiplier": 2,
                    "retryableStatusCodes": ["UNAVAILABLE"],
                },
            }
        ]
    }
)


@pytest.mark.parametrize(("ours", "attempts"), [(True, 1), (False, 5)])
def test_a_service_config_adds_no_retries(
    service: ScriptedService, endpoint: str, ours: bool, attempts: int
) -> None:
    # given a policy that somebody has put into DNS, or here into the channel
    options: list[tuple[str, Any]] = [("grpc.service_config", POLICY)]
    service.replies["GetLoad"] = [LOST] * 5
    options += channel_options(endpoint) if ours else []
    with grpc.insecure_channel(endpoint, options) as channel, pytest.raises(grpc.RpcError):
        ReasoningServiceStub(channel).GetLoad(pb.GetLoadRequest())

    # then only a channel that is not ours would follow it
    assert len(service.requests) == attempts
