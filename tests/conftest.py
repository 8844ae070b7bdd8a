"""For all tests."""

import signal

from hypothesis import HealthCheck, settings

# Machines are noisy: no test may fail because it was slow.
settings.register_profile("thoughtbeam", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("thoughtbeam")

# Whoever starts the tests in the background of a script, or with nohup, has them ignore these, and so would
# the processes that the tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
