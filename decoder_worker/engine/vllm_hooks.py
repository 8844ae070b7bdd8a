"""Capture of boundary rows and confidences inside vLLM's workers (`worker_extension_cls`).

Two attributes of the running worker are wrapped, none of vLLM's files is touched: the model's
`compute_logits`, whose first argument is the hidden row after the final norm of every sampled position,
outside the CUDA graph in both model runners; and the runner's `sample_tokens`, whose output carries the
wanted rows on. A third, `execute_model`, only tells which requests come and go.

The row of a step belongs to the step's *input* token, so a boundary's row comes with the step after it. A
confidence belongs to the token that the step samples. It is computed where the logits come out of the model:
what sampling does to them (in place, at times) comes later.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from decoder_worker.engine.boundaries import BOUNDARY, TAIL, Table, code_after, last_code

if TYPE_CHECKING:
    import torch

# The places of both on vLLM's ModelRunnerOutput, on its way from a worker to the scheduler.
ROWS = "thoughtbeam_rows"
CONFIDENCES = "thoughtbeam_confidences"  # Mapping[str, float]: of the token just sampled, by request
# Set in the extra_args of a request's SamplingParams, which vLLM carries unread: it wants confidences.
ASKS = "thoughtbeam_confidence"
TOP_TOKENS = 20  # that a confidence looks at


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of one step. by_request: raw values of each wanted row."""

    dtype: str
    by_request: Mapping[str, bytes]


class CaptureExtension:
    """Methods that vLLM adds to its worker; called with `collective_rpc`."""

    model_runner: Any

    def thoughtbeam_capture(self, entries: Sequence[Sequence[int]] | None) -> None:
        """Switches the capture on (with the boundary table as rows of token, three codes) or off (None).

        Only while no request is known to the worker: it follows every request from its first step.
        """
        runner = self.model_runner
        capture: BoundaryCapture | None = getattr(runner, "thoughtbeam", None)
        if capture is not None:
            capture.remove()
            runner.thoughtbeam = None
        if entries is not None and _gives_the_output():
            runner.thoughtbeam = BoundaryCapture(runner, {e[0]: (e[1], e[2], e[3]) for e in entries})


def _gives_the_output() -> bool:
    """Whether this is the rank whose output reaches the scheduler: the first of the last pipeline stage."""
    from vllm.distributed.parallel_state import get_pp_group, get_tp_group

    return bool(get_pp_group().is_last_rank) and get_tp_group().rank_in_group == 0


class BoundaryCapture:
    """Follows the requests of one model runner and picks the rows of their boundaries, and the confidences of
    those that ask for them. While none asks, nothing is computed."""

    def __init__(self, runner: Any, table: Table) -> None:
        self._runner = runner
        self._model = runner.model
        self._table = table
        # code of each known request's last token; BOUNDARY in it: its row is wanted
        self._codes: dict[str, int] = {}
        self._asking: set[str] = set()
        self._rows: torch.Tensor | None = None
        self._confidences: torch.Tensor | None = None
        self._copy_stream: Any = None
        self._compute_logits: Callable[..., Any] = self._model.compute_logits
        self._sample_tokens: Callable[..., Any] = runner.sample_tokens
        self._execute_model: Callable[..., Any] = runner.execute_model
        self._model.compute_logits = self._on_compute_logits
        runner.sample_tokens = self._on_sample_tokens
        runner.execute_model = self._on_execute_model

    def remove(self) -> None:
        """Takes the wraps away: what is left is stock vLLM."""
        # the wraps are instance attributes that hide the classes' methods
        del self._model.compute_logits
        del self._runner.sample_tokens
        del self._runner.execute_model

    def _on_execute_model(self, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
        for request in scheduler_output.finished_req_ids:
            self._codes.pop(request, None)
            self._asking.discard(request)
        for new in scheduler_output.scheduled_new_reqs:
            # The first row is always wanted: the front end knows whether it is a boundary not yet scored. A
            # request that is known comes back from a preemption (runner V2 gets it as new): nothing has
            # changed.
            self._codes.setdefault(new.req_id, BOUNDARY | last_code(self._table, new.prompt_token_ids))
            if _asks(new.sampling_params):
                self._asking.add(new.req_id)
        self._rows = self._confidences = None
        return self._execute_model(scheduler_output, *args, **kwargs)

    def _on_compute_logits(self, hidden_states: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        logits = self._compute_logits(hidden_states, *args, **kwargs)
        if self._rows is None:  # a later call of the same step would be for log-probabilities of the prompt
            self._rows = hidden_states
            if self._asking:
                self._confidences = confidences_of(logits)
        return logits

    def _on_sample_tokens(self, *args: Any, **kwargs: Any) -> Any:
        output = self._sample_tokens(*args, **kwargs)
        rows, confidences = self._rows, self._confidences
        self._rows = self._confidences = None
        if rows is None or output is None:
            return output
        host = self._start_copy(rows, confidences)
        if hasattr(output, "get_output"):
            return _late_output_class()(output, self, host)
        self.attach(output, host)
        return output

    def _start_copy(self, rows: torch.Tensor, confidences: torch.Tensor | None) -> HostRows:
        """Starts the copy to the host beside the model's own stream: nothing of a step waits for it."""
        if not rows.is_cuda:
            return HostRows(rows, confidences, None)
        import torch

        cuda: Any = torch.cuda
        if self._copy_stream is None:
            self._copy_stream = cuda.Stream()
        stream = self._copy_stream
        stream.wait_stream(cuda.current_stream())
        copies: list[torch.Tensor | None] = []
        with cuda.stream(stream):
            for source in (rows, confidences):
                if source is None:
                    copies.append(None)
                    continue
                host = torch.empty(source.shape, dtype=source.dtype, pin_memory=True)
                copies.append(host.copy_(source, non_blocking=True))
                source.record_stream(stream)
            done = cuda.Event()
            done.record(stream)
        host_rows, host_confidences = copies
        assert host_rows is not None
        return HostRows(host_rows, host_confidences, done)

    def attach(self, output: Any, host: HostRows) -> None:
        """Puts what is wanted on a step's output, whose tokens are on the host by now."""
        wanted = self._advance(output.req_ids, output.sampled_token_ids)
        if not wanted and host.confidences is None:
            return
        if len(output.req_ids) != host.rows.shape[0]:
            raise RuntimeError(
                f"{host.rows.shape[0]} hidden rows for {len(output.req_ids)} requests: "
                "rows cannot be told apart (speculative decoding or sharded sampling?)"
            )
        host.wait()
        if wanted:
            setattr(output, ROWS, host.pick(wanted))
        if host.confidences is not None:
            sampled = zip(output.req_ids, output.sampled_token_ids, host.confidences.tolist(), strict=False)
            asking = self._asking
            setattr(
                output, CONFIDENCES, {name: c for name, tokens, c in sampled if tokens and name in asking}
            )

    def _advance(self, requests: Sequence[str], sampled: Sequence[Sequence[int]]) -> dict[str, int]:
        """Goes on by one step's tokens; returns where the wanted rows are, by request."""
        wanted: dict[str, int] = {}
        codes, table = self._codes, self._table
        # one turn per token: the usual case, text after text, changes nothing and calls nothing
        for index, (request, tokens) in enumerate(zip(requests, sampled, strict=False)):
            code = codes.get(request)
            if code is None or not tokens:  # gone by now, or a piece of a prompt that is not its last
                continue
            if code & BOUNDARY:
                wanted[request] = index
            if code or tokens[-1] in table:
                codes[request] = code_after(table, code & TAIL, tokens[-1])
        return wanted


def _asks(sampling: Any) -> bool:
    """Whether a request with these SamplingParams wants confidences."""
    return bool(sampling is not None and sampling.extra_args and sampling.extra_args.get(ASKS))


def confidences_of(logits: torch.Tensor) -> torch.Tensor:
    """Minus the mean log-probability of the top tokens, of each row of logits [requests, vocabulary]. 0 where
    that is no finite number."""
    import torch

    values = logits.float()
    top = values.topk(min(TOP_TOKENS, values.shape[-1]), dim=-1, sorted=False).values
    return torch.nan_to_num(values.logsumexp(-1) - top.mean(-1), nan=0.0, posinf=0.0, neginf=0.0)


@dataclass(frozen=True, slots=True)
class HostRows:
    """Rows of one step [requests, hidden size] and, if any request asked, one confidence each; on the host
    once `done` has happened."""

    rows: torch.Tensor
    confidences: torch.Tensor | None
    done: Any

    def wait(self) -> None:
        if self.done is not None:
            self.done.synchronize()

    def pick(self, wanted: Mapping[str, int]) -> Rows:
        import torch

        picked = self.rows[list(wanted.values())].contiguous().view(torch.uint8).numpy()
        by_request = {request: row.tobytes() for request, row in zip(wanted, picked, strict=True)}
        return Rows(str(self.rows.dtype).removeprefix("torch."), by_request)


@functools.cache
def _late_output_class() -> Callable[[Any, BoundaryCapture, HostRows], Any]:
    """The class for outputs whose tokens are still on the device; made when needed, since its base is
    vLLM's."""
    from vllm.v1.outputs import AsyncModelRunnerOutput

    class LateOutput(AsyncModelRunnerOutput):  # type: ignore[misc]
        """Attaches the rows when the output itself is fetched."""

        def __init__(self, output: Any, capture: BoundaryCapture, host: HostRows) -> None:
            self._output, self._capture, self._host = output, capture, host

        def get_output(self) -> Any:
            output = self._output.get_output()
            self._capture.attach(output, self._host)
            return output

        def __getattr__(self, name: str) -> Any:
            return getattr(self._output, name)

    return LateOutput
