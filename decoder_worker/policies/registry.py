"""All policies by name: how one is made for a request, and what is told of them to clients."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from decoder_worker.policies import parameters
from decoder_worker.policies.base import Policy
from decoder_worker.policies.best_of_n import BestOfN
from decoder_worker.policies.deepconf import DeepConf
from decoder_worker.policies.gambit import Gambit
from decoder_worker.policies.parameters import Limits, ParameterError, ParameterInfo
from decoder_worker.policies.rebase import Rebase
from decoder_worker.policies.sart import Sart, SartNoPrune
from decoder_worker.policies.self_consistency import SelfConsistency
from decoder_worker.policies.slim_sc import SlimSc
from decoder_worker.policies.step import StepPolicy
from decoder_worker.policies.vanilla import Vanilla

POLICIES: Mapping[str, type[Policy[Any]]] = MappingProxyType(
    {
        kind.name: kind
        for kind in (
            Vanilla,
            SelfConsistency,
            BestOfN,
            Gambit,
            Sart,
            SartNoPrune,
            StepPolicy,
            DeepConf,
            SlimSc,
            Rebase,
        )
    }
)


@dataclass(frozen=True, slots=True)
class PolicyInfo:
    """A policy as a client sees it."""

    name: str
    summary: str
    source: str
    needs_scores: bool
    parameters: tuple[ParameterInfo, ...]


def make_policy(name: str, profile: str, overrides: Mapping[str, object], limits: Limits) -> Policy[Any]:
    """The policy of a request with all its parameters checked.

    overrides: by parameter name, as they come from JSON. Raises ParameterError; an unknown policy or profile
    is a violation of `policy` or `profile`.
    """
    kind = POLICIES.get(name)
    if kind is None:
        near = difflib.get_close_matches(name[:60], POLICIES, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise ParameterError([("policy", f"no such policy; {hint}known are {', '.join(POLICIES)}")])
    return kind(parameters.resolve(kind.parameters_type, profile, overrides, limits))


def describe() -> list[PolicyInfo]:
    """All policies with their parameters."""
    return [
        PolicyInfo(
            kind.name,
            kind.summary,
            kind.source,
            kind.needs_scores,
            parameters.describe(kind.parameters_type),
        )
        for kind in POLICIES.values()
    ]
