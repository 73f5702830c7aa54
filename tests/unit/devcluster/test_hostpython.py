"""Python for pods without an image: mounts that hold an interpreter, and none inside another."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tools.devcluster import hostpython


def test_no_path_lies_below_another() -> None:
    paths = hostpython.host_paths()
    assert len(paths) == len(set(paths))
    assert [(a, b) for a in paths for b in paths if a != b and b.startswith(a + "/")] == []


def test_the_interpreter_its_libraries_and_the_checkout_are_among_them() -> None:
    paths = hostpython.host_paths()
    for needed in (sys.executable, os.path.realpath(sys.executable), os.__file__, str(hostpython.REPOSITORY)):
        assert any(needed == path or needed.startswith(path + "/") for path in paths), needed


def test_an_interpreter_behind_a_link_is_mounted_by_both_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "python-3.11.7").mkdir()
    (tmp_path / "python-3.11").symlink_to("python-3.11.7")
    monkeypatch.setattr(sys, "base_prefix", str(tmp_path / "python-3.11"))
    paths = hostpython.host_paths()
    assert {str(tmp_path / "python-3.11"), str(tmp_path / "python-3.11.7")} <= set(paths)
    sources = {volume["hostPath"]["path"] for volume in hostpython.volumes()}
    assert str(tmp_path / "python-3.11") not in sources  # a link would lead nowhere in a pod


def test_each_mount_has_its_volume_and_is_read_only() -> None:
    volumes, mounts = hostpython.volumes(), hostpython.mounts()
    assert [volume["name"] for volume in volumes] == [mount["name"] for mount in mounts]
    assert all(mount["readOnly"] for mount in mounts)
    for volume, mount in zip(volumes, mounts, strict=True):
        assert volume["hostPath"]["path"] == os.path.realpath(mount["mountPath"])


def test_a_container_runs_this_interpreter_and_keeps_what_it_is_given() -> None:
    extra = {"name": "shared", "mountPath": "/shared"}
    made = hostpython.container("main", ["-m", "x"], environment={"A": "b"}, volumeMounts=[extra], tty=True)
    assert made["command"] == [sys.executable, "-m", "x"]
    assert made["imagePullPolicy"] == "Never"
    assert {"name": "A", "value": "b"} in made["env"]
    assert made["volumeMounts"][-1] == extra
    assert made["tty"] is True


@pytest.mark.parametrize(("folder", "seen"), [(f"{sys.prefix}/bytecode", True), ("/nowhere/bytecode", False)])
def test_bytecode_that_is_mounted_is_used(folder: str, seen: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "pycache_prefix", folder)
    variables = {one["name"]: one["value"] for one in hostpython.container("main", ["-m", "x"])["env"]}
    assert (variables.get("PYTHONPYCACHEPREFIX") == folder) is seen
