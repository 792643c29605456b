"""For all tests."""

from hypothesis import settings

# No test is timed: a busy machine is not a fault.
settings.register_profile("slipway", deadline=None)
settings.load_profile("slipway")
