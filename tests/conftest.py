"""What all tests share."""

from hypothesis import settings

# The same examples in every run: a failure in CI is a failure here. To look for new ones:
# pytest --hypothesis-profile explore
settings.register_profile("fixed", derandomize=True, deadline=None, database=None)
settings.register_profile("explore", max_examples=20_000, deadline=None)
settings.load_profile("fixed")
