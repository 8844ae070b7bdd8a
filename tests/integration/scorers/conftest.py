"""The whole service, for a scorer to be served in."""

from __future__ import annotations

from tests.integration.service.conftest import service, valkey

__all__ = ["service", "valkey"]
