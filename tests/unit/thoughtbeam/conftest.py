from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.thoughtbeam.calls import Calls
from tests.unit.thoughtbeam.scripted_service import ScriptedService, serving


@pytest.fixture(params=["sync", "aio"])
def calls(request: pytest.FixtureRequest) -> Calls:
    return Calls(request.param)


@pytest.fixture
def service() -> ScriptedService:
    return ScriptedService()


@pytest.fixture
def endpoint(service: ScriptedService) -> Iterator[str]:
    with serving(service) as address:
        yield address
