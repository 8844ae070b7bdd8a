"""The service that a benchmark measures: one that runs already, or the embedded default."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from thoughtbeam.local import LocalConfig, running
from thoughtbeam.supervision.signals import StopSignals
from thoughtbeam.supervision.state import StateDirectory


@contextlib.contextmanager
def service(
    endpoint: str = "",
    *,
    slots: int,
    kv_blocks: int = 0,
    scorer: Path | None = None,
    process_reward: Path | None = None,
) -> Iterator[str]:
    """An endpoint: the one given, else that of an embedded default on free ports, stopped at the end.
    kv_blocks: of its engine; 0: what memory allows. scorer, process_reward: other than the bundled scorer."""
    if endpoint:
        yield endpoint
        return
    with (
        tempfile.TemporaryDirectory() as folder,
        StopSignals() as signals,
        running(
            LocalConfig(
                port=None,
                slots=slots,
                kv_blocks=kv_blocks,
                scorer=str(scorer) if scorer else None,
                process_reward=str(process_reward) if process_reward else None,
            ),
            StateDirectory(Path(folder)),
            signals,
            lambda line: print(line, file=sys.stderr),
        ) as (ready, _),
        signals.interruptible(),
    ):
        yield ready.endpoint
