"""What our hooks in vLLM's processes cost per step: the capture of rows and confidences and their hand-over.

The classes are those that vLLM runs; the runner and the scheduler under them are made up.
"""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

from bench.report import quantile
from decoder_worker.engine.boundaries import make_table

_HIDDEN = 2560  # of a 4 B model
_VOCABULARY = 128  # of the bundled model
_GAP = 100
_ORDINARY, _BOUNDARY = 0, 1
_WAYS = (
    {"hooked": False, "confidence": False},
    {"hooked": True, "confidence": False},
    {"hooked": True, "confidence": True},
)


def hook_costs(traces: int, *, quick: bool = False) -> dict[str, float]:
    """Microseconds per step (p50) with so many traces, of which one in a hundred passes a boundary. With
    confidences all of them ask for these."""
    times = 50 if quick else 1000
    bare, on, sure = (_capture(traces, times, **options) for options in _WAYS)
    found = {"capture: boundaries followed, rows picked": on - bare}
    found[f"capture: confidences too, of {_VOCABULARY:,} logits each"] = sure - bare
    if not quick:  # vLLM takes half a minute to import
        bare, on, sure = (_handover(traces, times, **options) for options in _WAYS)
        found["hand-over: rows, step and KV use onto the outputs"] = on - bare
        found["hand-over: confidences too"] = sure - bare
    return {name: round(seconds * 1e6, 1) for name, seconds in found.items()}


def _sampled(traces: int, step: int) -> list[list[int]]:
    return [[_BOUNDARY if (step + 7 * i) % _GAP == 0 else _ORDINARY] for i in range(traces)]


def _capture(traces: int, times: int, *, hooked: bool, confidence: bool) -> float:
    import torch

    from decoder_worker.engine.vllm_hooks import ASKS, BoundaryCapture

    torch.set_num_threads(1)
    rows = torch.randn(traces, _HIDDEN, dtype=torch.bfloat16)
    logits = torch.randn(traces, _VOCABULARY, dtype=torch.bfloat16)
    sampling = SimpleNamespace(extra_args={ASKS: True} if confidence else None)
    names = [f"{i:036}/{i}#{i}" for i in range(traces)]

    class Model:
        def compute_logits(self, hidden: Any) -> Any:
            return logits

    class Runner:
        def __init__(self) -> None:
            self.model = Model()
            self.step = 0

        def execute_model(self, scheduler_output: Any) -> None:
            self.model.compute_logits(rows)

        def sample_tokens(self, grammar: Any) -> Any:
            return SimpleNamespace(req_ids=names, sampled_token_ids=sampled[self.step % _GAP])

    sampled = [_sampled(traces, step) for step in range(_GAP)]
    runner = Runner()
    if hooked:
        BoundaryCapture(runner, make_table(["a", "\n\n"]))
    new = [
        SimpleNamespace(req_id=name, prompt_token_ids=[_ORDINARY], sampling_params=sampling) for name in names
    ]
    found = []
    for runner.step in range(times):
        scheduled = SimpleNamespace(scheduled_new_reqs=new, finished_req_ids=())
        new = []
        began = time.perf_counter()
        runner.execute_model(scheduled)
        runner.sample_tokens(None)
        found.append(time.perf_counter() - began)
    return quantile(found, 0.5)


def _handover(traces: int, times: int, *, hooked: bool, confidence: bool) -> float:
    from thoughtbeam.runtime.vllm_life import prepare_environment

    prepare_environment()
    from decoder_worker.engine.vllm_hooks import CONFIDENCES, ROWS, Rows
    from decoder_worker.engine.vllm_scheduler import HandoverMixin

    names = [f"{i:036}/{i}#{i}" for i in range(traces)]

    class Scheduler:
        def __init__(self) -> None:
            self.kv_cache_manager = SimpleNamespace(usage=0.5)
            self.running: list[Any] = []
            self.requests = {name: SimpleNamespace(num_tokens=1000) for name in names}

        def update_from_output(self, scheduled: Any, output: Any) -> Any:
            return {0: SimpleNamespace(outputs=outputs)}

    class Hooked(HandoverMixin, Scheduler):
        pass

    scheduler = (Hooked if hooked else Scheduler)()
    found = []
    for step in range(times):
        outputs = [
            SimpleNamespace(request_id=name, new_token_ids=[0], kv_transfer_params=None) for name in names
        ]
        wanted = {name: bytes(2 * _HIDDEN) for i, name in enumerate(names) if (step + 7 * i) % _GAP == 0}
        output = SimpleNamespace(**{ROWS: Rows("bfloat16", wanted)})
        if confidence:
            setattr(output, CONFIDENCES, dict.fromkeys(names, 9.5))
        began = time.perf_counter()
        scheduler.update_from_output(SimpleNamespace(total_num_scheduled_tokens=traces), output)
        found.append(time.perf_counter() - began)
    return quantile(found, 0.5)
