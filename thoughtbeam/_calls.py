"""What each method of a client asks the service, once for both clients. No I/O.

A method is a generator: it yields what is to be asked and is sent the reply, or the error is thrown into it;
what it returns is what the method returns. The clients do the asking, with the retries.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, TypeVar

from google.protobuf.message import Message

from thoughtbeam import _mapping, errors
from thoughtbeam._feed import (
    Feed,
    ResultParts,
    TraceParts,
    WatchFeed,
    cut_short,
    without_tree_if_refused,
)
from thoughtbeam._requests import tree_name
from thoughtbeam.results import Load, Node, Policy, Result, Trace, Tree, TreeState, Worker
from thoughtbeam.v1 import reasoning_pb2 as pb

NODES_PAGE = 500
TREES_PAGE = 50


@dataclass(frozen=True, slots=True)
class Ask:
    """One call with one reply. tree_id: what it is about."""

    method: str
    request: Message
    tree_id: str | None = None


Returned = TypeVar("Returned")
# a Feed is read to its end, and keeps what it was told
Steps = Generator[Ask | Feed[Any], Any, Returned]


def submit(request: pb.SubmitRequest) -> Steps[Tree]:
    try:
        reply: pb.SubmitResponse = yield Ask("Submit", request, request.request_id)
    except errors.ApiError as error:
        raise without_tree_if_refused(error) from None
    return _mapping.tree(reply.tree)


def wait(tree_id: str) -> Steps[Result]:
    while True:
        before: pb.GetTreeResponse = yield _get_tree(tree_id)
        if not _under_way(before.tree):
            return (yield from _ending(before.tree))
        try:
            # what happened before tells nothing about the end
            yield WatchFeed(tree_id, before.tree.last_event_id)
        except errors.OutOfRangeError:
            continue  # fell behind
        after: pb.GetTreeResponse = yield _get_tree(tree_id)
        return (yield from _ending(after.tree))


def result(tree_id: str) -> Steps[Result]:
    parts = ResultParts(tree_id)
    yield parts
    return parts.result()


def whole(found: Result) -> Steps[Result]:
    """The result that a tree or the end of a search has, fetched if it is too large to be there."""
    return (yield from result(found.tree_id)) if found.abridged else found


def trace(tree_id: str, node: int, own_only: bool) -> Steps[Trace]:
    parts = TraceParts(tree_id, node, own_only)
    yield parts
    return parts.trace()


def tree(tree_id: str) -> Steps[Tree]:
    found: pb.GetTreeResponse = yield _get_tree(tree_id)
    nodes: list[Node] = []
    request = pb.ListNodesRequest(parent=tree_name(tree_id), page_size=NODES_PAGE)
    while True:
        page: pb.ListNodesResponse = yield Ask("ListNodes", request, tree_id)
        nodes.extend(_mapping.node(n) for n in page.nodes)
        if not page.next_page_token:
            return _mapping.tree(found.tree, tuple(nodes))
        request.page_token = page.next_page_token


def trees(page_size: int, page_token: str) -> Steps[tuple[list[Tree], str]]:
    """One page, and the token of the next; "": there is none."""
    request = pb.ListTreesRequest(page_size=page_size, page_token=page_token)
    page: pb.ListTreesResponse = yield Ask("ListTrees", request)
    return [_mapping.tree(t) for t in page.trees], page.next_page_token


def cancel(tree_id: str) -> Steps[Tree]:
    request = pb.CancelTreeRequest(name=tree_name(tree_id))
    reply: pb.CancelTreeResponse = yield Ask("CancelTree", request, tree_id)
    return _mapping.tree(reply.tree)


def delete(tree_id: str, force: bool) -> Steps[None]:
    try:
        yield Ask("DeleteTree", pb.DeleteTreeRequest(name=tree_name(tree_id), force=force), tree_id)
    except errors.NotFoundError as error:
        # an attempt whose reply was lost may have deleted it
        if not error.retries:
            raise


def policies() -> Steps[list[Policy]]:
    reply: pb.ListPoliciesResponse = yield Ask("ListPolicies", pb.ListPoliciesRequest())
    return [_mapping.policy(p) for p in reply.policies]


def load() -> Steps[Load]:
    reply: pb.GetLoadResponse = yield Ask("GetLoad", pb.GetLoadRequest())
    return _mapping.load(reply)


def workers() -> Steps[list[Worker]]:
    found: list[Worker] = []
    request = pb.ListWorkersRequest()
    while True:
        page: pb.ListWorkersResponse = yield Ask("ListWorkers", request)
        found.extend(_mapping.worker(w) for w in page.workers)
        if not page.next_page_token:
            return found
        request.page_token = page.next_page_token


def _get_tree(tree_id: str) -> Ask:
    return Ask("GetTree", pb.GetTreeRequest(name=tree_name(tree_id)), tree_id)


def _under_way(message: pb.Tree) -> bool:
    return message.state in (pb.TREE_STATE_QUEUED, pb.TREE_STATE_RUNNING)


def _ending(message: pb.Tree) -> Steps[Result]:
    """The result of a tree that has ended, or its error: the one that the call of Reason ends with."""
    found = _mapping.tree(message)
    if found.error is not None:
        raise errors.CLASSES.get(found.error.code, errors.UnknownError)(
            found.error.message,
            reason=found.error.reason,
            violations=found.error.violations,
            metadata={"tree": message.name},
            tree_id=found.id,
        )
    if found.state is TreeState.CANCELLED:
        raise errors.CancelledError(
            "the tree was cancelled",
            reason="TREE_CANCELLED",
            metadata={"tree": message.name},
            tree_id=found.id,
        )
    if _under_way(message):
        raise cut_short(found.id)
    return (yield from result(found.id)) if found.result is None else (yield from whole(found.result))
