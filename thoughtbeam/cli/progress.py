"""A running search on the terminal: what its traces are doing, and how fast."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator

from rich.console import Group
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from thoughtbeam.cli import terminal
from thoughtbeam.cli.result_view import STATE_STYLES, origins
from thoughtbeam.cli.words import counted
from thoughtbeam.results import (
    NodeState,
    Progress,
    Round,
    TokenUsage,
    TreeCounts,
    TreeEvent,
    TreeState,
    TreeTransition,
)

_RATE_SECONDS = 3.0


class SearchProgress:
    """What the events of one search add up to; rich draws it. now: monotonic seconds."""

    def __init__(self, policy: str, now: Callable[[], float] = time.monotonic) -> None:
        self._policy = policy
        self._now = now
        self._started = now()
        self._state = ""
        self._counts = TreeCounts()
        self._usage = TokenUsage()
        self._kv_use: float | None = None
        self._samples: deque[tuple[float, int]] = deque([(self._started, 0)])
        self._spinner = Spinner("dots")

    def update(self, event: TreeEvent) -> None:
        match event:
            case TreeTransition(state=state):
                self._state = state
            case Round(kv_use=kv_use):
                self._kv_use = kv_use
            case Progress(counts=counts, usage=usage):
                self._state = TreeState.RUNNING
                self._counts, self._usage = counts, usage
                self._sample(usage.generated)

    def tokens_per_second(self) -> float:
        """Over the last few seconds."""
        (begin, before), (end, after) = self._samples[0], self._samples[-1]
        return (after - before) / (end - begin) if end > begin else 0.0

    def __rich__(self) -> Group:
        counts = self._counts
        self._spinner.update(
            text=Text(f"{self._policy} {self._state or 'connecting'} {self._now() - self._started:.1f} s")
        )
        if not counts.nodes:
            return Group(self._spinner)
        states = Text("  ")
        for state in (
            *(NodeState.LIVE, NodeState.PENDING, NodeState.HELD, NodeState.GHOST),
            *(NodeState.FINISHED, NodeState.PRUNED),
        ):
            number = getattr(counts, state)
            if number or state not in (NodeState.PENDING, NodeState.HELD):
                states.append(f"{state} {number}   ", style=STATE_STYLES[state])
        work = (
            f"  {origins(counts)} · {counted(counts.rounds, 'tournament')} · "
            f"{counted(self._usage.generated, 'token')} · "
            f"{self.tokens_per_second():,.0f} tok/s"
        )
        if self._kv_use is not None:
            work += f" · KV {self._kv_use:.0%}"
        return Group(self._spinner, states, Text(work, style="dim"))

    def _sample(self, generated: int) -> None:
        now = self._now()
        self._samples.append((now, generated))
        while len(self._samples) > 2 and now - self._samples[1][0] >= _RATE_SECONDS:
            self._samples.popleft()


@contextlib.contextmanager
def shown(policy: str, show: bool) -> Iterator[Callable[[TreeEvent], None] | None]:
    """Draws a search on stderr while entered; gives what to call with each event."""
    if not show:
        yield None
        return
    progress = SearchProgress(policy)
    with Live(progress, console=terminal.messages(), transient=True, refresh_per_second=8):
        yield progress.update
