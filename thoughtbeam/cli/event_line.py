"""An event of a search as one line, for people and for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence

from thoughtbeam.cli.document import plain
from thoughtbeam.cli.terminal import one_line
from thoughtbeam.cli.words import counted
from thoughtbeam.results import NodeTransition, Progress, Round, TreeEvent, TreeTransition

_LONGEST_REASON = 200
_KINDS = {TreeTransition: "tree", NodeTransition: "node", Round: "round", Progress: "progress"}


def event_line(event: TreeEvent) -> str:
    """`TIME ID WHAT`. The id can be given to --after."""
    time = event.time.strftime("%H:%M:%S.%f")[:-3] if event.time else "-"
    return f"{time}  {event.event_id}  {_what(event)}"


def event_object(event: TreeEvent) -> str:
    """A JSON object on one line: the fields of the event, and its `kind`: tree, node, round, progress or
    unknown."""
    return json.dumps({"kind": _KINDS.get(type(event), "unknown"), **plain(event)}, ensure_ascii=False)


def _what(event: TreeEvent) -> str:
    match event:
        case TreeTransition(state=state, reason=reason):
            return f"search {state}{_because(reason)}"
        case NodeTransition(before=None, parent=parent):
            origin = "root" if parent is None else f"branch of {parent}"
            return f"trace {event.node} {event.after}, a {origin}{_because(event.reason)}"
        case NodeTransition(before=before):
            return f"trace {event.node} {before} → {event.after}{_because(event.reason)}"
        case Round():
            return (
                f"tournament {event.number}: capacity {event.capacity_count} ({event.live} live, "
                f"{event.ghosts} ghosts), KV use {event.kv_use:.0%}; "
                f"pruned {_listed(event.pruned)}; branched {_listed(event.branched)}"
            )
        case Progress(counts=counts, usage=usage):
            return (
                f"{counted(counts.nodes, 'node')}, {counts.live} live, {counts.finished} finished, "
                f"{counted(usage.generated, 'token')}"
            )
        case _:
            return "an event that this version does not know"


def _because(reason: str) -> str:
    return f" ({one_line(reason, _LONGEST_REASON)})" if reason else ""


def _listed(nodes: Sequence[int]) -> str:
    return " ".join(map(str, nodes)) or "none"
