"""Results as JSON: the fields of thoughtbeam.results under their own names."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any


def document(value: object) -> str:
    """One JSON document; times are ISO 8601, a value that is not there is null."""
    return json.dumps(plain(value), indent=2, ensure_ascii=False)


def plain(value: object) -> Any:
    """The same as what json takes: dicts, lists, strings, numbers."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(v) for v in value]
    return value
