"""vLLM's scheduler with our hand-over (`scheduler_cls`): rows, confidences, step numbers and KV use
travel with a step's outputs, priorities can change while requests run.

vLLM runs this in its engine-core process. The front end only names the classes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.engine.core import EngineCore

from decoder_worker.engine.vllm_hooks import CONFIDENCES, ROWS, Rows
from decoder_worker.engine.vllm_tap import HANDOVER
from thoughtbeam.runtime.parent_watch import die_with_starter

# Name of the engine core's utility method.
CONTROL = "thoughtbeam_control"

_PREEMPTIONS_KEPT = 10_000
_QUEUES = ("waiting", "skipped_waiting", "kv_holding_waiting")  # 0.25 has the second, 0.32 the third


class HandoverMixin:
    """Adds to each step's outputs {HANDOVER: {"step", "kv_use"}} on the first, and {"row"}, {"confidence"}
    where there is one."""

    running: list[Any]
    requests: dict[str, Any]
    kv_cache_manager: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._step_number = 0
        self._preemptions: deque[tuple[str, int, list[int]]] = deque(maxlen=_PREEMPTIONS_KEPT)

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        rows: Rows | None = getattr(model_runner_output, ROWS, None)
        confidences: Mapping[str, float] = getattr(model_runner_output, CONFIDENCES, None) or {}
        # A request that ends with this step leaves self.requests.
        requests = {name: self.requests.get(name) for name in rows.by_request} if rows else {}
        by_client = super().update_from_output(scheduler_output, model_runner_output)  # type: ignore[misc]
        if scheduler_output.total_num_scheduled_tokens:
            self._step_number += 1
        step: dict[str, Any] = {"step": self._step_number, "kv_use": self.kv_cache_manager.usage}
        for client in by_client.values():
            for output in client.outputs:
                handed = step
                step = {}
                request = requests.get(output.request_id)
                if rows is not None and request is not None:
                    # The row belongs to the token before the one that was sampled from it.
                    position = request.num_tokens - 1 - len(output.new_token_ids)
                    handed["row"] = (position, rows.dtype, rows.by_request[output.request_id])
                if output.new_token_ids and output.request_id in confidences:
                    handed["confidence"] = confidences[output.request_id]
                if handed:
                    output.kv_transfer_params = {HANDOVER: handed}
        return by_client

    def _preempt_request(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        others = [other.priority for other in self.running if other is not request]
        self._preemptions.append((request.request_id, request.priority, others))
        return super()._preempt_request(request, *args, **kwargs)  # type: ignore[misc]

    # ---- control, called between two steps

    def set_priorities(self, priorities: Mapping[str, int]) -> None:
        """By request; the queues that are ordered by priority are ordered anew."""
        for request in self.running:
            request.priority = priorities.get(request.request_id, request.priority)
        for name in _QUEUES:
            queue = getattr(self, name, None)
            if not queue:
                continue
            waiting = list(queue)
            queue.remove_requests(waiting)
            for request in waiting:
                request.priority = priorities.get(request.request_id, request.priority)
                queue.add_request(request)

    def block_ids(self, _: None) -> dict[str, list[int]]:
        """KV blocks of the running requests, in the order of their tokens (first KV cache group)."""
        return {
            request.request_id: list(self.kv_cache_manager.get_block_ids(request.request_id)[0])
            for request in self.running
        }

    def preemptions(self, _: None) -> list[tuple[str, int, list[int]]]:
        """The last preemptions: request, its priority, those of the requests that went on."""
        return list(self._preemptions)


class HandoverScheduler(HandoverMixin, Scheduler):  # type: ignore[misc]
    """For synchronous scheduling."""


class HandoverAsyncScheduler(HandoverMixin, AsyncScheduler):  # type: ignore[misc]
    """For asynchronous scheduling."""


def _control(core: Any, method: str, argument: Any) -> Any:
    return getattr(core.scheduler, method)(argument)


# The engine core answers calls by method name, and has no other way to its scheduler.
setattr(EngineCore, CONTROL, _control)


# Every process that vLLM starts imports this module while it unpickles the configuration that it is started
# with, since that names a class of it: long before it has loaded a model.
die_with_starter()
