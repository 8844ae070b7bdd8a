"""What the connected workers have said that they can run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from thoughtbeam.runtime.scorers import CONFIDENCE
from thoughtbeam.v1 import reasoning_pb2 as pb
from thoughtbeam.v1 import work_pb2


def runs(offer: work_pb2.Hello, policy: str, scorer: str) -> bool:
    """Whether a worker knows the policy and has the scores that it needs. scorer: as a search names it."""
    known = next((p for p in offer.policies if p.name == policy), None)
    scored = bool(offer.scorer) or scorer == CONFIDENCE
    return known is not None and (scored or not known.needs_scores)


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The offers of some workers, in the order in which they connected; false when there are none.

    policies: by name. The workers of one service run one release; where they differ while a new one is rolled
    out, the newest description counts. max_capacity: the largest that any of them takes; 0: none given.
    """

    workers: tuple[work_pb2.Hello, ...]
    policies: Mapping[str, pb.Policy]

    @classmethod
    def of(cls, workers: Iterable[work_pb2.Hello]) -> Catalogue:
        offers = tuple(workers)
        return cls(offers, {policy.name: policy for offer in offers for policy in offer.policies})

    def __bool__(self) -> bool:
        return bool(self.workers)

    def can_run(self, policy: str, scorer: str) -> bool:
        """Whether a worker can run it. scorer: as the search names it."""
        return any(runs(offer, policy, scorer) for offer in self.workers)

    @property
    def unscored(self) -> list[str]:
        """Names of the policies that need no scores."""
        return sorted(name for name, policy in self.policies.items() if not policy.needs_scores)

    def serving(self, model: str) -> Catalogue:
        """The part of the workers that serve this model; empty: of all."""
        return Catalogue.of(offer for offer in self.workers if model in ("", offer.model))

    @property
    def models(self) -> list[str]:
        return sorted({offer.model for offer in self.workers})

    @property
    def profiles(self) -> list[str]:
        """Names of the sets of defaults, over all policies."""
        policies = self.policies.values()
        return sorted({name for policy in policies for p in policy.parameters for name in p.defaults})

    @property
    def max_capacity(self) -> int:
        return max((offer.max_capacity for offer in self.workers), default=0)

    @property
    def max_context(self) -> int:
        """The longest sequence that any of them takes, in tokens; 0: none given."""
        return max((offer.max_context for offer in self.workers), default=0)
