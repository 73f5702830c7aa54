"""The runtime's image of this machine's Python: what goes into it, and when it is made anew."""

from __future__ import annotations

import io
import json
import os
import sys
import tarfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tools.devcluster import images, runtimeimage


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with packages of one module each, and a cache of its own."""
    folder = tmp_path / "checkout"
    for name in runtimeimage.PACKAGES:
        (folder / name / "__pycache__").mkdir(parents=True)
        (folder / name / "__init__.py").write_text(f"WHO = {name!r}\n")
        (folder / name / "__pycache__" / "stale.pyc").write_bytes(b"")
    monkeypatch.setattr(runtimeimage, "REPOSITORY", folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


def test_the_sidecars_packages_are_found_with_what_they_need_and_without_torch() -> None:
    names = {one.metadata["Name"].lower() for one in runtimeimage.needed()}
    assert {"pydantic", "pydantic_core", "numba", "llvmlite", "numpy"} <= names
    assert not names & {"torch", "triton", "kopf", "pytest"}


def test_a_checkout_is_staged_once_and_anew_when_a_file_changes(repository: Path) -> None:
    first = runtimeimage.checkout()
    assert runtimeimage.checkout() == first
    (repository / "syncgroup" / "__init__.py").write_text("WHO = 'changed'\n")
    assert runtimeimage.checkout() != first


@pytest.mark.usefixtures("repository")
def test_two_that_stage_at_once_stage_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second would take away the folder that the first works in already."""
    began, compiling, may_end = [], threading.Event(), threading.Event()

    def compile_below(*_arguments: object) -> None:
        began.append(threading.current_thread())
        compiling.set()
        assert may_end.wait(10)

    monkeypatch.setattr(runtimeimage, "compile_below", compile_below)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(runtimeimage.checkout)
        assert compiling.wait(10)
        second = threads.submit(runtimeimage.checkout)
        with pytest.raises(TimeoutError):
            second.result(0.3)
        may_end.set()
        assert first.result(10) == second.result(10)
    assert len(began) == 1


def test_what_nobody_used_for_long_is_forgotten(repository: Path) -> None:
    first = runtimeimage.checkout()
    long_ago_s = time.time() - runtimeimage.KEPT_S - 60
    os.utime(first, (long_ago_s, long_ago_s))
    assert runtimeimage.checkout() == first, "use keeps it"
    os.utime(first, (long_ago_s, long_ago_s))
    (repository / "syncgroup" / "__init__.py").write_text("WHO = 'changed'\n")
    runtimeimage.checkout()
    assert not first.exists()


def test_what_is_staged_has_no_time_and_bytecode_that_knows_its_place(repository: Path) -> None:
    staged = runtimeimage.checkout()
    source = staged / "sync_runtime" / "__init__.py"
    assert source.stat().st_mtime == 0, "numba believes a compiled loop by the time of its source"
    compiled = source.parent / "__pycache__" / f"__init__.{sys.implementation.cache_tag}.pyc"
    assert str(source).encode() in compiled.read_bytes(), "also where this machine keeps its bytecode elsewhere"
    assert not (staged / "sync_runtime" / "__pycache__" / "stale.pyc").exists()


@pytest.mark.parametrize("hidden", [True, False])
def test_the_image_holds_checkout_loops_and_program_and_everybody_may_read_them(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hidden: bool
) -> None:
    monkeypatch.setattr(runtimeimage, "HIDDEN", str(tmp_path) if hidden else "/nowhere")
    (tmp_path / "empty").mkdir()
    (tmp_path / "base.tar").write_bytes(images.layer_of(tmp_path / "empty"))
    monkeypatch.setattr(runtimeimage, "base_layer", lambda: tmp_path / "base.tar")
    code = runtimeimage.checkout()
    (code / runtimeimage.LOOPS).mkdir(mode=0o700)
    (code / runtimeimage.LOOPS / "loop.nbi").write_bytes(b"x")
    os.chmod(code / "syncgroup" / "__init__.py", 0o600)
    runtimeimage.build(tmp_path / "image.tar")
    members = _top_layer(tmp_path / "image.tar")
    pth = next(name for name in members if name.endswith("site-packages/checkout.pth"))
    inside = str(Path(pth).parent) if hidden else str(code).lstrip("/")
    assert members[f"{inside}/syncgroup/__init__.py"].mode == 0o644
    assert members[f"{inside}/{runtimeimage.LOOPS}"].mode == 0o755
    assert f"{inside}/{runtimeimage.LOOPS}/loop.nbi" in members
    assert members["usr/local/bin/syncgroup"].mode == 0o755


def _top_layer(archive: Path) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(archive) as whole:
        files = {one.name: _content(whole, one) for one in whole.getmembers()}
    digest = json.loads(files["index.json"])["manifests"][0]["digest"].partition(":")[2]
    layer = json.loads(files[f"blobs/sha256/{digest}"])["layers"][-1]["digest"].partition(":")[2]
    with tarfile.open(fileobj=io.BytesIO(files[f"blobs/sha256/{layer}"])) as inner:
        return {one.name: one for one in inner.getmembers()}


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    stream = archive.extractfile(member)
    assert stream is not None
    return stream.read()
