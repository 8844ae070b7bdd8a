"""For all tests."""

from hypothesis import HealthCheck, settings

# Machines are noisy: no test may fail because it was slow.
settings.register_profile("thoughtbeam", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("thoughtbeam")
