"""Python's garbage collector in a process whose event loop must not pause."""

from __future__ import annotations

import gc

# Objects made and not dropped since the last look at the young ones. A step makes and drops a thousand, none
# of them in a cycle: with Python's own 700 the collector would look at them in every step.
_YOUNG = 10_000


def calm_collector() -> None:
    """Leaves what is loaded by now out of all later collections, and has them less often.

    To be called once everything is imported: with an engine that is a million objects, which would be gone
    through again and again, a tenth of a second each time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, 10, 10)
