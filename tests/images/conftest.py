"""Images of this checkout, built once for the whole run; skips with the reason where that is impossible.

SYNCGROUP_IMAGES names the images to build, in the words of `make test-images VARIANTS=…`; the small ones if empty.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tools import images
from tools.errors import HostError
from tools.images import Images
from tools.images.catalog import IMAGES, chosen
from tools.images.daemonless import Builder

BUILD_TIMEOUT_S = 3600
Build = Callable[[str], Path]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first test also waits for the build, which takes minutes where nothing is cached."""
    for item in items:
        if "tests/images" in item.path.as_posix():
            item.add_marker(pytest.mark.timeout(BUILD_TIMEOUT_S))


@pytest.fixture(scope="session")
def builder() -> Builder:
    """Builds without a daemon."""
    reason = images.why_impossible()
    if reason is not None:
        pytest.skip(reason)
    return Builder(lambda _: None)


@pytest.fixture(scope="session")
def build(builder: Builder) -> Build:
    """The archive of an image by name; a machine without Debian's archive skips, a build that fails fails."""

    def make(name: str) -> Path:
        if IMAGES[name] not in chosen(os.environ.get("SYNCGROUP_IMAGES", "").split()):
            pytest.skip(f"the image {name} is built when asked for: make test-images VARIANTS={name}")
        try:
            return builder.ensure(IMAGES[name])
        except HostError as error:
            pytest.skip(str(error))

    return make


@pytest.fixture(scope="session")
def built(build: Build) -> Images:
    """Operator and runtime."""
    for name in ("operator", "runtime"):
        build(name)
    found = images.cached()
    assert found is not None
    return found
