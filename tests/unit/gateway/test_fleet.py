"""Connected workers: credit, what they can run, and the order of what is sent to them."""

from __future__ import annotations

import grpc
import pytest

from gateway.fleet import Fleet, Wanted, WorkerStream
from tests.unit.gateway.requests import hello
from thoughtbeam.runtime.status import StatusError
from thoughtbeam.v1 import reasoning_pb2 as pb
from thoughtbeam.v1 import work_pb2

ANY = Wanted("", "gambit", 0)


def joined(fleet: Fleet, credit: int, worker: str, model: str = "tiny", **changed: object) -> WorkerStream:
    stream = WorkerStream(hello(worker, model, **changed))
    fleet.join(stream)
    fleet.grant(stream, credit)
    return stream


async def sent(stream: WorkerStream, count: int) -> list[str]:
    """The next messages, as `kind tree`."""
    messages = []
    for _ in range(count):
        message = await stream.next()
        kind = message.WhichOneof("message")
        messages.append(f"{kind} {getattr(message, str(kind)).tree_id}")
        stream.sent(message)
    return messages


def assignment(tree_id: str) -> work_pb2.Assignment:
    return work_pb2.Assignment(tree_id=tree_id, epoch=1)


async def test_the_worker_with_the_most_credit_is_taken() -> None:
    fleet = Fleet()
    none, some, most = joined(fleet, 0, "w0"), joined(fleet, 1, "w1"), joined(fleet, 2, "w2")
    taken = []
    while stream := fleet.ready_for(ANY):
        stream.reserve(f"t{len(taken)}")
        taken.append(stream)

    assert taken == [most, some, most]
    assert (fleet.credit, none.credit) == (0, 0)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (Wanted("large", "gambit", 0), "w2"),
        (Wanted("small", "gambit", 64), "w1"),
        (Wanted("", "gambit", 65), "w2"),
        (Wanted("", "sart", 0), "w3"),
        (Wanted("other", "gambit", 0), None),
        # nobody can: whoever serves the model says why
        (Wanted("small", "gambit", 65), "w1"),
        (Wanted("small", "sart", 0), "w1"),
        # without a scorer only where no worker has one
        (Wanted("", "step", 0), "w4"),
        (Wanted("unscored", "step", 0), "w5"),
        # by confidence every worker scores
        (Wanted("", "step", 0, "confidence"), "w5"),
    ],
)
async def test_a_tree_goes_to_a_worker_that_can_run_it(wanted: Wanted, expected: str | None) -> None:
    fleet = Fleet()
    joined(fleet, 1, "w1", "small")
    joined(fleet, 1, "w2", "large", max_capacity=256)
    step = pb.Policy(name="step", needs_scores=True)
    joined(fleet, 1, "w3", "large", policies=[pb.Policy(name="sart")])
    joined(fleet, 1, "w4", "scored", policies=[step], scorer="mlp")
    joined(fleet, 2, "w5", "unscored", policies=[step])
    stream = fleet.ready_for(wanted)

    assert (stream.worker if stream else None) == expected


async def test_a_tree_waits_for_the_worker_that_can_run_it_rather_than_fail_elsewhere() -> None:
    fleet = Fleet()
    joined(fleet, 1, "w1")
    joined(fleet, 0, "w2", max_capacity=256)

    assert fleet.ready_for(Wanted("", "gambit", 100)) is None


async def test_a_tree_that_was_not_assigned_costs_no_credit() -> None:
    fleet = Fleet()
    stream = joined(fleet, 1, "w1")
    stream.reserve("t1")
    assert fleet.ready_for(ANY) is None
    stream.release("t1")

    assert fleet.ready_for(ANY) is stream


async def test_a_cancellation_follows_the_assignment_that_was_under_way() -> None:
    fleet = Fleet()
    stream = joined(fleet, 2, "w1")
    stream.reserve("t1")
    stream.reserve("t2")
    fleet.cancel("w1", "t2")
    fleet.cancel("w1", "t0")
    fleet.cancel("somebody else", "t1")
    assert stream.assign(assignment("t1"))
    assert stream.assign(assignment("t2"))

    assert await sent(stream, 4) == ["cancellation t0", "assignment t1", "assignment t2", "cancellation t2"]


async def test_what_was_not_sent_when_the_stream_ends_is_given_back() -> None:
    fleet = Fleet()
    stream = joined(fleet, 3, "w1")
    for tree_id in ("t1", "t2", "t3"):
        stream.reserve(tree_id)
    stream.assign(assignment("t1"))
    stream.assign(assignment("t2"))
    await sent(stream, 1)
    stream.close()

    assert [a.tree_id for a in stream.unsent] == ["t2"]
    assert not stream.assign(assignment("t3"))
    assert [a.tree_id for a in stream.unsent] == ["t2"]


async def test_a_closed_stream_takes_no_credit() -> None:
    fleet = Fleet()
    stream = joined(fleet, 1, "w1")
    stream.reserve("t1")
    stream.close()
    stream.release("t1")
    fleet.grant(stream, 5)

    assert (stream.credit, fleet.credit) == (0, 0)


async def test_a_worker_that_comes_back_replaces_its_old_stream() -> None:
    fleet = Fleet()
    old = joined(fleet, 1, "w1")
    new = joined(fleet, 1, "w1", "other")
    assert old.closed.is_set()
    assert old.closed_because is not None
    assert old.closed_because.reason == "WORKER_REPLACED"
    fleet.leave(old)  # seen to end later

    assert fleet.ready_for(ANY) is new
    assert fleet.catalogue.models == ["other"]
    fleet.leave(new)
    assert not fleet.catalogue


async def test_a_closed_fleet_turns_late_workers_away() -> None:
    fleet = Fleet()
    early = joined(fleet, 1, "w1")
    why = StatusError(grpc.StatusCode.UNAVAILABLE, "GATEWAY_STOPPING", "stopping")
    fleet.close(why)
    late = joined(fleet, 1, "w2")

    assert early.closed_because is late.closed_because is why
    assert fleet.ready_for(ANY) is None


async def test_the_newest_description_of_a_policy_counts() -> None:
    fleet = Fleet()
    joined(fleet, 0, "w1", policies=[pb.Policy(name="new", summary="old")])
    joined(fleet, 0, "w2", policies=[pb.Policy(name="new", summary="new")])

    assert fleet.catalogue.policies["new"].summary == "new"


async def test_a_draining_worker_neither_takes_nor_offers_nor_stands_in_the_way() -> None:
    fleet = Fleet()
    draining, other = joined(fleet, 5, "w1"), joined(fleet, 1, "w2", max_capacity=0)
    other.hello.ClearField("policies")
    fleet.changed.clear()

    fleet.drain(draining)

    assert fleet.changed.is_set()
    assert fleet.credit == 1
    assert [offer.worker for offer in fleet.catalogue.workers] == ["w2"]
    fleet.grant(draining, 3)
    assert draining.credit == 0
    # a tree that only it could run goes to whoever serves the model and says why not
    assert fleet.ready_for(ANY) is other


async def test_what_was_on_its_way_to_a_draining_worker_is_sent() -> None:
    fleet = Fleet()
    stream = joined(fleet, 2, "w1")
    for tree_id in ("t1", "t2"):
        stream.reserve(tree_id)
    fleet.drain(stream)

    assert stream.assign(assignment("t1"))
    stream.release("t2")
    fleet.cancel("w1", "t1")

    assert stream.credit == 0
    assert await sent(stream, 2) == ["assignment t1", "cancellation t1"]
