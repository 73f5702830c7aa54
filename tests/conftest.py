"""For all tests: properties are judged by their truth, not by their speed, and leave nothing in the checkout."""

from hypothesis import settings

from tests.support.examples import examples

settings.register_profile("syncgroup", deadline=None, database=None, max_examples=examples(50))
settings.load_profile("syncgroup")
