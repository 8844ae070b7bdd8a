"""The sequence scorer as it is served: what it needs of a trace's earlier thoughts is kept, so that one more
costs one row of the network and one look at its history, however many tokens the thoughts have.

Kept are keys and values of each thought, in a pool of slots (`thought_cache.py`). What was forgotten is
computed again from projected rows, which the caller keeps (NeedHistory of scoring.proto).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from prm_worker.scorers.base import Float16Array, Float32Array, Scored, TracePart, digest
from prm_worker.scorers.calibration import calibrated
from prm_worker.scorers.sequence import Block, net_of
from prm_worker.scorers.thought_cache import NoRoomError, Slots, ThoughtCache, TraceKey

CACHE_DTYPES = {"float16": torch.float16, "float32": torch.float32}
DEFAULT_CACHE_BYTES = 512 * 2**20
DEFAULT_CACHE_DTYPE = "float16"

# Thoughts that are put into the pool together: bounds what restoring long histories takes beside the pool.
_THOUGHTS_AT_ONCE = 16_384
# Keys and values that are read out of the pool together: on a CPU as many as its cache holds.
_VALUES_AT_ONCE = {"cpu": 2**20}
_VALUES_AT_ONCE_ELSEWHERE = 2**27


@dataclass(frozen=True, slots=True, eq=False)
class _Job:
    """One part that can be scored. slots: of all its thoughts. base: thoughts of them that are in the pool
    already. at: index of its first row among all rows."""

    part: TracePart
    slots: Slots
    base: int
    at: int


class SequenceScorer:
    """Made from the `state_dict` of a SequenceNet.

    calibration: as in a scorer file, checked. cache_bytes: of keys and values. cache_dtype: how they are
    kept; computed with in float32. Raises ValueError naming the tensor that does not fit, or for a cache that
    has no room for one thought.
    """

    kind = "sequence"

    def __init__(
        self,
        weights: Mapping[str, Tensor],
        device: str = "cpu",
        calibration: Mapping[str, Any] | None = None,
        cache_bytes: int = DEFAULT_CACHE_BYTES,
        cache_dtype: str = DEFAULT_CACHE_DTYPE,
    ) -> None:
        self._calibration = calibration or {}
        self.scorer_id = digest(self.kind, weights, self._calibration)
        self._device = torch.device(device)
        self._net = net_of(weights).to(self._device)
        self.hidden_size, self.history_size = self._net.hidden_size, self._net.width
        dtype = CACHE_DTYPES[cache_dtype]
        blocks = [cast(Block, block) for block in self._net.blocks]
        self._blocks = blocks
        self.max_thoughts = cache_bytes // (len(blocks) * 2 * self._net.width * dtype.itemsize)
        if self.max_thoughts < 1:
            raise ValueError(f"a cache of {cache_bytes} bytes has no room for one thought")
        self.cache = ThoughtCache(self.max_thoughts)
        # [slot, key and value, head, size] per layer; a CPU gives the memory when a slot is first used
        shape = (self.max_thoughts, 2, blocks[0].heads, self._net.width // blocks[0].heads)
        self._pools = [torch.empty(shape, dtype=dtype, device=self._device) for _ in blocks]

    @torch.inference_mode()
    def score(self, rows: Float32Array) -> Float32Array:
        """Scores of rows, each the first thought of a trace of its own; see Scorer."""
        projected = self._net.project(torch.from_numpy(rows).to(self._device))
        return self.scores_of(self._net.logits(projected.unsqueeze(1)).squeeze(1))

    @torch.inference_mode()
    def score_parts(self, rows: Float32Array, parts: Sequence[TracePart]) -> Scored:
        """See HistoryScorer. Raises ValueError for a part with more than max_thoughts thoughts."""
        longest = max(part.first + part.rows for part in parts)
        if longest > self.max_thoughts:
            raise ValueError(f"{longest} thoughts in a trace; there may be {self.max_thoughts}")
        projected = self._net.project(torch.from_numpy(rows).to(self._device)).half()
        run = _Pass(self, parts, projected)
        try:
            for index in range(len(parts)):
                run.add(index)
            run.flush()
        except BaseException:
            for part in parts:  # slots may have been given that nothing was put into
                self.cache.drop((part.tree_id, part.node))
            raise
        return run.outcome()

    def drop(self, tree_id: str, nodes: Sequence[int]) -> None:
        """See HistoryScorer."""
        self.cache.drop_nodes(tree_id, nodes)

    def scores_of(self, logits: Tensor) -> Float32Array:
        """Calibrated scores."""
        return calibrated(logits, self._calibration)

    # ---- the network, with what is in the pool

    def logits(self, jobs: Sequence[_Job], projected: Tensor) -> Tensor:
        """Logits of the rows of jobs [rows], after their thoughts from `base` on have been put into the pool.
        projected: float16 [thoughts from `base` on of all jobs, width]."""
        slots = np.concatenate([job.slots[job.base :] for job in jobs])
        positions = np.concatenate([np.arange(job.base, len(job.slots)) for job in jobs])
        wanted = np.concatenate([np.arange(job.base, len(job.slots)) >= job.part.first for job in jobs])
        owners = np.repeat(np.arange(len(jobs)), [len(job.slots) - job.base for job in jobs])
        chosen = np.arange(len(slots))
        places, where = self._tensor(slots), self._tensor(positions)
        x = projected.float()
        for number, (block, pool) in enumerate(zip(self._blocks, self._pools, strict=True)):
            pool[places] = torch.stack(block.keys_values(x, where), 1).to(pool.dtype)
            if number == len(self._blocks) - 1:  # of a history, only later layers want more than this
                chosen = np.flatnonzero(wanted)
                x, where = x[self._tensor(chosen)], where[self._tensor(chosen)]
            seen = [jobs[owners[index]].slots[: positions[index] + 1] for index in chosen]
            x = block.finish(x, self._attend(block.queries(x, where), pool, seen))
        return self._net.head(x)

    def _attend(self, queries: Tensor, pool: Tensor, seen: Sequence[Slots]) -> Tensor:
        """What each query [queries, heads, size] finds in the slots that it sees."""
        attended = torch.empty_like(queries)
        lengths = np.array([len(slots) for slots in seen])
        order = np.argsort(lengths, kind="stable")  # next to each other, those of a length need no padding
        room = _VALUES_AT_ONCE.get(self._device.type, _VALUES_AT_ONCE_ELSEWHERE) // (2 * self._net.width)
        end = len(order)
        while end:
            longest = int(lengths[order[end - 1]])
            chosen = order[max(0, end - max(1, room // longest)) : end]
            end -= len(chosen)
            picked = np.zeros((len(chosen), longest), np.int32)
            for row, query in zip(picked, chosen, strict=True):
                row[: lengths[query]] = seen[query]
            found = pool.index_select(0, self._tensor(picked.reshape(-1))).float()
            found = found.reshape(len(chosen), longest, *pool.shape[1:])
            mask = None
            if lengths[chosen[0]] < longest:
                mask = self._tensor(np.arange(longest) < lengths[chosen][:, None])[:, None, None]
            own = self._tensor(chosen)
            attended[own] = functional.scaled_dot_product_attention(
                queries[own].unsqueeze(2),
                found[:, :, 0].transpose(1, 2),
                found[:, :, 1].transpose(1, 2),
                attn_mask=mask,
            ).squeeze(2)
        return attended

    def _tensor(self, values: npt.NDArray[Any]) -> Tensor:
        return torch.from_numpy(values).to(self._device)


class _Pass:
    """The parts of one call of score_parts, taken up one after the other and scored together."""

    def __init__(self, scorer: SequenceScorer, parts: Sequence[TracePart], projected: Tensor) -> None:
        self._scorer = scorer
        self._cache = scorer.cache
        self._parts = parts
        self._projected = projected
        self._starts = np.cumsum([0, *(part.rows for part in parts)])
        self._finite = projected.isfinite().all(1).cpu().numpy()
        self._scores = np.full(len(projected), np.nan, np.float32)
        self._kept = np.zeros(len(projected), bool)
        self._need_history: dict[int, int] = {}
        # taken up and not scored yet, so that the pool gets their thoughts together
        self._jobs: list[_Job] = []
        self._pinned: set[TraceKey] = set()
        self._pending = 0
        for part in parts:  # what this pass is going to want is the last to be forgotten
            if part.parent is not None:
                self._cache.touch((part.tree_id, part.parent))
            self._cache.touch((part.tree_id, part.node))

    def add(self, index: int) -> None:
        """Takes up a part, or notes why it cannot be scored."""
        part, at = self._parts[index], int(self._starts[index])
        finite = self._finite[at : at + part.rows]
        found = self._find(part)
        if not finite.all():
            self._scores[at : at + part.rows][finite] = 0.0
        elif isinstance(found, int):
            self._need_history[index] = found
        else:
            self._take_up(part, found, at)

    def flush(self) -> None:
        """Scores what has been taken up."""
        jobs, self._jobs = self._jobs, []
        self._pinned, self._pending = set(), 0
        if not jobs:
            return
        pieces = []
        for job in jobs:
            history = job.part.history
            if job.base < job.part.first and history is not None:
                own = torch.from_numpy(history[len(history) - (job.part.first - job.base) :])
                pieces.append(own.to(self._projected.device))
            pieces.append(self._projected[job.at : job.at + job.part.rows])
        scores = self._scorer.scores_of(self._scorer.logits(jobs, torch.cat(pieces)))
        rows = np.concatenate([np.arange(job.at, job.at + job.part.rows) for job in jobs])
        self._scores[rows] = scores
        self._kept[rows] = True

    def outcome(self) -> Scored:
        projected: Float16Array = self._projected.cpu().numpy().copy()
        projected[~self._kept] = 0
        return Scored(self._scores, projected, self._need_history)

    def _find(self, part: TracePart) -> tuple[TraceKey, int] | int:
        """Where the thoughts before the part's rows are found, and how many of them; else the number of those
        that there are, which are too few."""
        own, parent = (part.tree_id, part.node), (part.tree_id, part.parent or 0)
        sources = [(min(len(self._cache.slots(own)), part.first), own)]
        if part.parent is not None:
            sources.append((min(len(self._cache.slots(parent)), part.fork, part.first), parent))
        best, source = max(sources, key=lambda found: found[0])
        sent = 0 if part.history is None else len(part.history)
        return (source, best) if best + sent >= part.first else best

    def _take_up(self, part: TracePart, found: tuple[TraceKey, int], at: int) -> None:
        key, (source, base) = (part.tree_id, part.node), found
        new = part.first - base + part.rows
        # slots that are given back must not be waited for
        cuts = key in self._pinned and (source != key or base < len(self._cache.slots(key)))
        if cuts or self._pending + new > _THOUGHTS_AT_ONCE:
            self.flush()
        self._cache.begin(key, source, base)
        try:
            slots = self._cache.append(key, new, self._pinned)
        except NoRoomError:
            self.flush()
            slots = self._cache.append(key, new, ())
        self._jobs.append(_Job(part, slots, base, at))
        self._pinned.add(key)
        self._pending += new
