"""Checks a request's policy parameters, one by one, against the policy's description.

Rules across parameters, and those that need the tokenizer, are checked by the worker before the tree runs.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator

from google.protobuf import struct_pb2

from thoughtbeam.runtime.status import Violation
from thoughtbeam.v1 import reasoning_pb2 as pb

FIELD = "search.parameters"
MAX_PARAMETERS = 100
MAX_NAME_CHARS = 64
MAX_VALUE_CHARS = 200
# parameters that name a logical capacity, in traces
CAPACITY = ("C", "N", "W")
# integers above it do not survive the trip through a JSON number
_EXACT = 2**53


def check_parameters(
    parameters: struct_pb2.Struct, policy: pb.Policy | None, max_capacity: int
) -> Iterator[Violation]:
    """Every bad parameter. policy: None when it is not known; then only what is bad for any is found.
    max_capacity: the largest of any worker; 0: not known."""
    if len(parameters.fields) > MAX_PARAMETERS:
        yield Violation(FIELD, f"at most {MAX_PARAMETERS} entries, has {len(parameters.fields)}")
        return
    for name, value in sorted(parameters.fields.items()):
        field = f"{FIELD}.{name[:MAX_NAME_CHARS]}"
        problem = _check_shape(name, value)
        if problem is None and policy is not None:
            problem = _check_against(policy, name, value)
        if problem is None and name in CAPACITY and 0 < max_capacity < value.number_value:
            problem = f"at most {max_capacity}, the largest capacity of a connected worker; is {_show(value)}"
        if problem is not None:
            yield Violation(field, problem)


def capacity_of(parameters: struct_pb2.Struct) -> float:
    """The logical capacity that the parameters ask for; 0: they do not say."""
    return max(
        (parameters.fields[name].number_value for name in CAPACITY if name in parameters.fields), default=0
    )


def _check_shape(name: str, value: struct_pb2.Value) -> str | None:
    kind = value.WhichOneof("kind")
    if not 0 < len(name) <= MAX_NAME_CHARS:
        return f"a name has 1 to {MAX_NAME_CHARS} characters"
    if kind not in ("number_value", "string_value", "bool_value", "null_value"):
        return "must be a number, a string, a boolean or null"
    if kind == "number_value" and not math.isfinite(value.number_value):
        return f"must be a finite number, is {value.number_value}"
    if len(value.string_value) > MAX_VALUE_CHARS:
        return f"at most {MAX_VALUE_CHARS} characters, has {len(value.string_value)}"
    return None


def _check_against(policy: pb.Policy, name: str, value: struct_pb2.Value) -> str | None:
    parameter = next((p for p in policy.parameters if p.name == name), None)
    if parameter is None:
        return _unknown(name, policy)
    kind = value.WhichOneof("kind")
    if kind == "null_value" and _takes_null(parameter):
        return None
    match parameter.type:
        case "bool" if kind != "bool_value":
            return f"must be true or false, is {_show(value)}"
        case "choice" if kind != "string_value" or value.string_value not in parameter.choices:
            return f"must be one of {', '.join(parameter.choices)}; is {_show(value)}"
        case "int" | "float" if kind != "number_value" or not _in_range(parameter, value.number_value):
            return f"must be {_range(parameter)}, is {_show(value)}"
    return None


def _unknown(name: str, policy: pb.Policy) -> str:
    known = [p.name for p in policy.parameters]
    if not known:
        return f"{policy.name} has no parameters"
    folded = {k.casefold(): k for k in known}
    nearest = difflib.get_close_matches(name.casefold(), folded, n=1)
    has = f"did you mean {folded[nearest[0]]}? It has" if nearest else "it has"
    return f"{policy.name} has no such parameter; {has} {', '.join(known)}"


def _takes_null(parameter: pb.PolicyParameter) -> bool:
    """Whether null is the default of some profile: a parameter that may be left out is one of those."""
    return any(default.WhichOneof("kind") == "null_value" for default in parameter.defaults.values())


def _in_range(parameter: pb.PolicyParameter, number: float) -> bool:
    if parameter.type == "int" and (not number.is_integer() or abs(number) > _EXACT):
        return False
    if parameter.HasField("minimum") and number < parameter.minimum:
        return False
    return not (parameter.HasField("maximum") and number > parameter.maximum)


def _range(parameter: pb.PolicyParameter) -> str:
    what = "an integer" if parameter.type == "int" else "a number"
    low = _number(parameter.minimum) if parameter.HasField("minimum") else None
    high = _number(parameter.maximum) if parameter.HasField("maximum") else None
    null = " or null" if _takes_null(parameter) else ""
    if low and high:
        return f"{what} from {low} to {high}{null}"
    if low:
        return f"{what}, at least {low}{null}"
    if high:
        return f"{what}, at most {high}{null}"
    return what + null


def _show(value: struct_pb2.Value) -> str:
    match value.WhichOneof("kind"):
        case "number_value":
            return _number(value.number_value)
        case "bool_value":
            return "true" if value.bool_value else "false"
        case "null_value":
            return "null"
        case _:
            return repr(value.string_value)


def _number(number: float) -> str:
    return str(int(number)) if number.is_integer() and abs(number) <= _EXACT else repr(number)
