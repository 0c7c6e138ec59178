"""Settings for all tests."""

from hypothesis import settings

# A busy machine is no failure: pytest's own timeout bounds a test, and the same examples are tried everywhere.
settings.register_profile("mtp-bench", deadline=None, derandomize=True)
settings.load_profile("mtp-bench")
