"""Decisions are measured on trees on which the policy really decides."""

from __future__ import annotations

import pytest

from bench.policies import POLICIES, K, decisions


@pytest.mark.parametrize("name", POLICIES)
def test_every_kind_of_decision_is_measured(name: str) -> None:
    found = {decision.what: decision for decision in decisions(name, 64, 3)}
    assert all(decision.p50 > 0 for decision in found.values())
    assert found["scores arrive"].actions == 0
    if name == "gambit":
        assert found["scores make a tournament due: K exchanged"].actions == 2 * K
        assert found["scores make a tournament due: one place refilled"].actions == 1
        assert found["memory pressure: a tenth of the blocks"].actions >= 6
