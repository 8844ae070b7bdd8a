"""vLLM's own schedulers under names of ours: every process of an engine imports this module when it unpickles
its configuration, before anything else of ours. (`python -m prm_worker` is a package's __main__, which
multiprocessing does not run again in the processes that it spawns.)
"""

from __future__ import annotations

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler

from thoughtbeam.runtime.parent_watch import die_with_starter

die_with_starter()


class WatchedScheduler(Scheduler):  # type: ignore[misc]
    """vLLM's, unchanged."""


class WatchedAsyncScheduler(AsyncScheduler):  # type: ignore[misc]
    """vLLM's, unchanged."""
