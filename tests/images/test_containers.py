"""Every image in a real container, with its own user, no rights, no network, a read-only root: it is whole there."""

from __future__ import annotations

import pytest

from tests.images.conftest import Build
from tools.images import archive, container
from tools.images.catalog import IMAGES
from tools.images.daemonless import Builder

EVERY = pytest.mark.parametrize("name", list(IMAGES))


@EVERY
def test_an_image_says_its_version(name: str, builder: Builder, build: Build) -> None:
    done = container.run(builder, build(name), "--version")
    assert done.returncode == 0, done.stderr
    assert "syncgroup" in done.stdout


@EVERY
def test_an_image_is_whole_on_a_read_only_root(name: str, builder: Builder, build: Build) -> None:
    done = container.run(builder, build(name), "--self-test")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert all(line.startswith("ok ") for line in lines), done.stdout
    assert "as user 65532 on a read-only root file system" in lines[-1]


@EVERY
def test_an_image_is_labelled(name: str, build: Build) -> None:
    facts = archive.read(build(name))
    labels = {key.removeprefix("org.opencontainers.image."): value for key, value in facts.labels.items()}
    assert labels["title"].startswith("SyncGroup ")
    assert labels["licenses"] == "Apache-2.0"
    assert labels["version"] != "unknown"
    assert facts.user == "65532:65532"


@pytest.mark.parametrize("name", ["operator", "runtime"])
def test_nothing_of_the_build_is_left_in_the_image(name: str, builder: Builder, build: Build) -> None:
    """Neither pip nor a compiler, nor where the caller's packages came from."""
    program = (
        "import importlib.util, os, shutil; "
        "print([one for one in ('pip', 'setuptools', 'hatchling', 'torch') if importlib.util.find_spec(one)], "
        "[one for one in ('sh', 'gcc', 'apt-get') if shutil.which(one)], "
        "[one for one in ('/build', '/run/secrets/pip.conf', '/cache') if os.path.exists(one)])"
    )
    done = container.run(builder, build(name), "-c", program, entrypoint=("python",))
    assert done.stdout.strip() == "[] [] []", done.stdout + done.stderr
