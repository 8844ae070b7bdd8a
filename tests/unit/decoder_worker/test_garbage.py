"""The collector leaves out what was there, and looks at young objects less often."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from decoder_worker.garbage import calm_collector


@pytest.fixture(autouse=True)
def collector_as_it_was() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


def test_what_is_loaded_is_left_out_and_cycles_made_later_are_still_found() -> None:
    before = gc.get_threshold()
    calm_collector()
    assert gc.get_freeze_count() > 1000
    assert gc.get_threshold()[0] > before[0]

    class Cycle:
        pass

    cycle = Cycle()
    cycle.itself = cycle  # type: ignore[attr-defined]
    del cycle
    assert any(isinstance(found, Cycle) for found in gc.get_objects())
    gc.collect()
    assert not any(isinstance(found, Cycle) for found in gc.get_objects())
