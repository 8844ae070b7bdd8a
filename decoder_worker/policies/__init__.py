"""Search methods: one file per policy, each a pure function from what has happened to what to do."""

from decoder_worker.policies.parameters import Limits, ParameterError, ParameterInfo
from decoder_worker.policies.registry import POLICIES, PolicyInfo, describe, make_policy

__all__ = ["POLICIES", "Limits", "ParameterError", "ParameterInfo", "PolicyInfo", "describe", "make_policy"]
