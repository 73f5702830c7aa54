"""The image packer: equal folders give equal bytes, and every digest is true."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tools.devcluster import images


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with files, a program, links and an empty folder."""
    folder = tmp_path / "root"
    (folder / "bin").mkdir(parents=True)
    (folder / "empty").mkdir()
    (folder / "bin" / "tool").write_bytes(b"#!/bin/sh\n")
    (folder / "bin" / "tool").chmod(0o755)
    (folder / "text").write_text("text")
    (folder / "bin" / "link").symlink_to("tool")
    (folder / "folder-link").symlink_to("bin")
    return folder


def _members(layer: bytes) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(layer)) as archive:
        return {member.name: member for member in archive.getmembers()}


class _Layout:
    """An OCI archive, read the way a container engine does."""

    def __init__(self, path: Path) -> None:
        with tarfile.open(path) as archive:
            self._files = {member.name: _content(archive, member) for member in archive.getmembers()}
        self.names = set(self._files)
        self.index = json.loads(self._files["index.json"])
        assert json.loads(self._files["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}

    def blob(self, descriptor: dict[str, Any]) -> bytes:
        kind, _, digest = descriptor["digest"].partition(":")
        content = self._files[f"blobs/{kind}/{digest}"]
        assert hashlib.sha256(content).hexdigest() == digest
        assert len(content) == descriptor["size"]
        return content


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    stream = archive.extractfile(member)
    assert stream is not None
    return stream.read()


def test_entries_belong_to_nobody_and_have_no_time(root: Path) -> None:
    for member in _members(images.layer_of(root)).values():
        assert (member.uid, member.gid, member.uname, member.gname, member.mtime) == (0, 0, "", "", 0)


def test_links_stay_links_and_modes_stay(root: Path) -> None:
    members = _members(images.layer_of(root))
    assert set(members) == {"bin", "bin/link", "bin/tool", "empty", "folder-link", "text"}
    assert (members["bin/link"].issym(), members["bin/link"].linkname) == (True, "tool")
    assert (members["folder-link"].issym(), members["folder-link"].linkname) == (True, "bin")
    assert members["bin/tool"].mode == 0o755
    assert members["empty"].isdir()


def test_the_bytes_do_not_depend_on_when_or_where(root: Path, tmp_path: Path) -> None:
    images.pack(root, tmp_path / "one.tar", reference="x.local/a:1", entrypoint=["/bin/tool"])
    moved = root.rename(tmp_path / "moved")
    for path in moved.rglob("*"):
        os.utime(path, (1, 1), follow_symlinks=False)
    images.pack(moved, tmp_path / "two.tar", reference="x.local/a:1", entrypoint=["/bin/tool"])
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()


def test_every_digest_and_size_is_true(root: Path, tmp_path: Path) -> None:
    images.pack(
        root, tmp_path / "a.tar", reference="x.local/a:1", entrypoint=["/bin/tool"], environment={"A": "b"}, user="7"
    )
    layout = _Layout(tmp_path / "a.tar")
    entry = layout.index["manifests"][0]
    manifest = json.loads(layout.blob(entry))
    config = json.loads(layout.blob(manifest["config"]))
    layer = layout.blob(manifest["layers"][0])
    assert layer == images.layer_of(root)
    assert config["rootfs"] == {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]}
    assert config["config"]["Entrypoint"] == ["/bin/tool"]
    assert config["config"]["User"] == "7"
    assert "A=b" in config["config"]["Env"]
    assert entry["annotations"]["io.containerd.image.name"] == "x.local/a:1"
    assert len(layout.names) == 5


def test_layers_below_come_first_and_keep_their_bytes(root: Path, tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "file").write_text("below")
    base = images.layer_of(tmp_path / "base")
    images.pack(root, tmp_path / "a.tar", reference="x.local/a:1", below=[base])
    layout = _Layout(tmp_path / "a.tar")
    manifest = json.loads(layout.blob(layout.index["manifests"][0]))
    layers = [layout.blob(one) for one in manifest["layers"]]
    assert layers == [base, images.layer_of(root)]
    diff_ids = json.loads(layout.blob(manifest["config"]))["rootfs"]["diff_ids"]
    assert diff_ids == [one["digest"] for one in manifest["layers"]]


@pytest.mark.parametrize(("machine", "name"), [("x86_64", "amd64"), ("aarch64", "arm64"), ("riscv64", "riscv64")])
def test_the_architecture_is_this_machines(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: str, name: str
) -> None:
    monkeypatch.setattr("platform.machine", lambda: machine)
    images.pack(root, tmp_path / "a.tar", reference="x.local/a:1")
    layout = _Layout(tmp_path / "a.tar")
    entry = layout.index["manifests"][0]
    config = json.loads(layout.blob(json.loads(layout.blob(entry))["config"]))
    assert entry["platform"] == {"architecture": name, "os": "linux"}
    assert config["architecture"] == name
