"""For all tests."""

import signal

import pytest
from hypothesis import HealthCheck, settings

# Machines are noisy: no test may fail because it was slow.
settings.register_profile("thoughtbeam", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("thoughtbeam")

# Whoever starts the tests in the background of a script, or with nohup, has them ignore these, and so would
# the processes that the tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "no_asyncio_debug: runs so many tasks that asyncio's debug mode would take minutes"
    )
