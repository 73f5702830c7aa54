"""The wrapper around runc: what a user namespace cannot give is taken out, everything else passes unread."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tools.kube import build, catalog

pytestmark = pytest.mark.timeout(120)  # the first test may have to build the wrapper

SPEC: dict[str, Any] = {
    "process": {"user": {"uid": 1000, "gid": 1000, "additionalGids": [0, 5, 1000]}, "args": ["x"]},
    "mounts": [
        {"destination": "/dev/pts", "options": ["nosuid", "gid=5", "uid=0", "mode=0620"]},
        {"destination": "/a"},
    ],
    "linux": {
        "cgroupsPath": "/kubepods/pod1",
        "resources": {"memory": {"limit": 9223372036854771712}},
        "seccomp": {"defaultAction": "SCMP_ACT_ERRNO"},
        "namespaces": [{"type": "pid"}],
    },
    "unknown": {"big": 9223372036854775807, "text": "ü"},
}


@pytest.fixture(scope="module")
def wrapper() -> str:
    """The built wrapper."""
    return build.ensure(catalog.load(), ["runc-bubble"])["runc-bubble"]


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A container's folder, and beside it a runc that says how it was called."""
    folder = tmp_path / "bundle"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(SPEC))
    runc = tmp_path / "runc"
    runc.write_text('#!/bin/sh\necho "runc $@"\n')
    runc.chmod(0o755)
    return folder


def _call(
    wrapper: str, bundle: Path, *arguments: str, one_id: bool = False, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    variables = {"RUNC_BUBBLE_TARGET": str(bundle.parent / "runc")} | (environment or {})
    prefix = ["unshare", "--user", "--map-root-user"] if one_id else []
    return subprocess.run(
        [*prefix, wrapper, *arguments], capture_output=True, text=True, check=False, env=os.environ | variables
    )


def _spec(bundle: Path) -> dict[str, Any]:
    fitted: dict[str, Any] = json.loads((bundle / "config.json").read_text())
    return fitted


def _has_all_ids() -> bool:
    return "4294967295" in Path("/proc/self/uid_map").read_text()


def _may_unshare() -> bool:
    probe = ["unshare", "--user", "--map-root-user", "true"]
    return (
        shutil.which("unshare") is not None and subprocess.run(probe, capture_output=True, check=False).returncode == 0
    )


@pytest.mark.parametrize("form", [["--bundle", "{}"], ["--bundle={}"], ["-b", "{}"]])
def test_cgroups_and_seccomp_are_taken_out(wrapper: str, bundle: Path, form: list[str]) -> None:
    place = [part.format(bundle) for part in form]
    done = _call(wrapper, bundle, "--root", "/r", "create", *place, "id")
    assert done.stdout == f"runc --root /r create {' '.join(place)} id\n"
    assert _spec(bundle)["linux"] == {"namespaces": [{"type": "pid"}]}
    assert _spec(bundle)["unknown"] == SPEC["unknown"]


@pytest.mark.parametrize(
    ("variable", "kept"), [("RUNC_BUBBLE_CGROUPS", {"cgroupsPath", "resources"}), ("RUNC_BUBBLE_SECCOMP", {"seccomp"})]
)
def test_what_works_here_is_kept(wrapper: str, bundle: Path, variable: str, kept: set[str]) -> None:
    _call(wrapper, bundle, "create", "--bundle", str(bundle), "id", environment={variable: "1"})
    linux = _spec(bundle)["linux"]
    assert set(linux) == kept | {"namespaces"}
    assert all(linux[name] == SPEC["linux"][name] for name in kept)  # numbers above 2^53 too


@pytest.mark.skipif(not _has_all_ids(), reason="this user namespace has not all ids")
def test_ids_that_exist_stay(wrapper: str, bundle: Path) -> None:
    _call(wrapper, bundle, "run", "--bundle", str(bundle), "id")
    assert _spec(bundle)["process"] == SPEC["process"]
    assert _spec(bundle)["mounts"] == SPEC["mounts"]


@pytest.mark.skipif(not _may_unshare(), reason="user namespaces are forbidden here")
def test_ids_that_do_not_exist_become_the_caller(wrapper: str, bundle: Path) -> None:
    done = _call(wrapper, bundle, "create", "--bundle", str(bundle), "id", one_id=True)
    assert done.returncode == 0, done.stderr
    assert _spec(bundle)["process"] == {"user": {"uid": 0, "gid": 0, "additionalGids": [0]}, "args": ["x"]}
    assert _spec(bundle)["mounts"][0]["options"] == ["nosuid", "uid=0", "mode=0620"]


@pytest.mark.skipif(not _may_unshare(), reason="user namespaces are forbidden here")
def test_a_command_in_a_running_container_is_fitted_too(wrapper: str, bundle: Path) -> None:
    process = bundle / "process.json"
    process.write_text(json.dumps(SPEC["process"]))
    _call(wrapper, bundle, "exec", "--process", str(process), "id", one_id=True)
    assert json.loads(process.read_text())["user"]["uid"] == 0
    assert _spec(bundle) == SPEC


@pytest.mark.parametrize("verb", ["delete", "state", "kill"])
def test_other_commands_touch_nothing(wrapper: str, bundle: Path, verb: str) -> None:
    assert _call(wrapper, bundle, verb, "id").stdout == f"runc {verb} id\n"
    assert _spec(bundle) == SPEC


def test_a_specification_that_cannot_be_read_starts_nothing(wrapper: str, bundle: Path) -> None:
    (bundle / "config.json").write_text('{"process": ')
    done = _call(wrapper, bundle, "create", "--bundle", str(bundle), "id")
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("runc-bubble: ")


def test_without_a_runc_it_says_so(wrapper: str, bundle: Path) -> None:
    done = _call(wrapper, bundle, "state", "id", environment={"RUNC_BUBBLE_TARGET": ""})
    assert (done.returncode, done.stderr) == (1, "runc-bubble: RUNC_BUBBLE_TARGET does not name a runc\n")
    done = _call(wrapper, bundle, "state", "id", environment={"RUNC_BUBBLE_TARGET": "/nowhere/runc"})
    assert done.returncode == 1
    assert "cannot start /nowhere/runc" in done.stderr
