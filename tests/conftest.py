"""For all tests: properties are judged by their truth, not by their speed, and leave nothing in the checkout."""

from hypothesis import settings

settings.register_profile("syncgroup", deadline=None, database=None)
settings.load_profile("syncgroup")
