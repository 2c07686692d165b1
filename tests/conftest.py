"""A build must not depend on luck: in CI, property tests try the same examples every time; elsewhere, new ones."""

import os

from hypothesis import settings

settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")
