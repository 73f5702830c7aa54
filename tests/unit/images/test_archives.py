"""Archives, fingerprints, containers and the last step of a build, without building anything."""

from __future__ import annotations

import importlib.util
import json
import os
import tarfile
import time
from pathlib import Path
from types import ModuleType

import pytest

from tools import debian, images
from tools.devcluster import images as packing
from tools.errors import BuildError, HostError
from tools.images import archive, container, daemonless
from tools.images.catalog import IMAGES, ROOT


def program(name: str) -> ModuleType:
    """A program that runs in builds, as a module."""
    spec = importlib.util.spec_from_file_location(Path(name).stem, ROOT / "images" / name)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def finish() -> ModuleType:
    """The program that runs last in every build."""
    return program("finish.py")


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    """An archive of a small image."""
    folder, target = tmp_path / "root", tmp_path / "image.tar"
    folder.mkdir()
    (folder / "file").write_text("text")
    packing.pack(
        folder, target, reference="example.local/x:1", entrypoint=["prog"], environment={"A": "b"}, user="65532:65532"
    )
    return target


def test_an_archive_tells_what_its_image_is(packed: Path) -> None:
    facts = archive.read(packed)
    assert facts.entrypoint == ("prog",)
    assert "A=b" in facts.environment
    assert facts.user == "65532:65532"
    assert facts.num_layers == 1
    assert facts.compressed_bytes > 0


def test_what_is_no_archive_is_told(tmp_path: Path) -> None:
    other = tmp_path / "other.tar"

    with tarfile.open(other, "w"):
        pass
    with pytest.raises(BuildError, match=r"holds no index\.json"):
        archive.read(other)


def test_a_container_is_as_restricted_as_a_pod(packed: Path) -> None:
    found = container.specification(archive.read(packed), ("--version",))
    process = found["process"]
    assert process["args"] == ["prog", "--version"]
    assert process["user"] == {"uid": 65532, "gid": 65532}
    assert process["noNewPrivileges"] is True
    assert process["capabilities"] == {}
    assert found["root"]["readonly"] is True
    assert "network" in {one["type"] for one in found["linux"]["namespaces"]}
    writable = {one["destination"] for one in found["mounts"] if one["type"] == "tmpfs"}
    assert writable == {"/tmp", "/dev"}  # noqa: S108 the volume that pods have


def test_a_fingerprint_follows_the_content_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tools.images import catalog

    monkeypatch.setattr(catalog, "ROOT", tmp_path)
    for name in (*catalog.SHARED, "requirements/operator.txt", "images/operator/Containerfile", "operator/a.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    image = IMAGES["operator"]
    first = image.fingerprint()
    os.utime(tmp_path / "operator" / "a.py", (0, 0))
    (tmp_path / "operator" / "__pycache__").mkdir()
    (tmp_path / "operator" / "__pycache__" / "a.pyc").write_text("")
    (tmp_path / "unrelated.py").write_text("")
    assert image.fingerprint() == first
    (tmp_path / "operator" / "a.py").write_text("changed")
    assert image.fingerprint() != first


def test_only_images_of_exactly_this_checkout_count_as_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert images.cached() is None
    daemonless.folder().mkdir(parents=True)
    daemonless.archive_of(IMAGES["operator"]).touch()
    assert images.cached() is None
    daemonless.archive_of(IMAGES["runtime"]).touch()
    found = images.cached()
    assert found is not None
    assert all(path.exists() for path in found.archives)
    values = found.chart_values()
    assert f"{values['image']['repository']}:{values['image']['tag']}" == found.operator.reference
    runtime = values["runtime"]["image"]
    assert f"{runtime['repository']}:{runtime['tag']}" == found.runtime.reference
    assert values["image"]["pullPolicy"] == "Never"


def test_where_images_cannot_be_built_a_sentence_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    assert "by root" in str(images.why_impossible())
    with pytest.raises(HostError, match="by root"):
        images.build()
    monkeypatch.setattr(os, "getuid", lambda: 0)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "`apt-get` is missing" in str(images.why_impossible())


def test_an_apt_that_fails_is_told_in_its_own_words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "apt-get"
    program.write_text("#!/bin/sh\necho 'E: no way to the archive' >&2\nexit 100\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(HostError, match="no way to the archive"):
        debian.Archive(tmp_path / "lists").closure(["python3"])


def test_the_closure_is_read_from_what_apt_plans(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "apt-get"
    program.write_text(
        "#!/bin/sh\necho 'Inst b (2 Debian:12 [amd64])'\necho 'Inst a (1:1-1 D [all]) []'\necho Conf b\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    found = debian.Archive(tmp_path / "lists").closure(["b"])
    assert found == [debian.Package("a", "1:1-1"), debian.Package("b", "2")]


def test_the_last_step_leaves_out_tests_and_makes_times_equal(finish: ModuleType, tmp_path: Path) -> None:
    for name in ("a/tests/test_x.py", "a/__pycache__/b.pyc", "a/b.py", "a/contests/c.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    finish.leave_out(tmp_path)
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.py")) == ["a/b.py", "a/contests/c.py"]
    finish.level_times(tmp_path)
    assert (tmp_path / "a" / "b.py").stat().st_mtime_ns == 0


def test_the_last_step_does_not_touch_again_what_it_has_levelled(finish: ModuleType, tmp_path: Path) -> None:
    """Or a layer of a few files of ours would hold every file of the layers below."""
    below, ours = tmp_path / "below.py", tmp_path / "ours.py"
    below.touch()
    finish.level_times(tmp_path)
    changed_ns = below.stat().st_ctime_ns
    time.sleep(0.02)
    ours.touch()
    finish.level_times(tmp_path)
    assert ours.stat().st_mtime_ns == 0
    assert below.stat().st_ctime_ns == changed_ns


def test_an_archive_is_imported_by_nodes_under_our_name(tmp_path: Path) -> None:
    layout = tmp_path / "layout"
    layout.mkdir()
    (layout / "index.json").write_text(json.dumps({"manifests": [{"digest": "sha256:0", "annotations": {"x": "y"}}]}))
    daemonless.pack(layout, tmp_path / "out.tar", "syncgroup.local/operator:abc")

    with tarfile.open(tmp_path / "out.tar") as made:
        member = made.extractfile("index.json")
        assert member is not None
        (entry,) = json.load(member)["manifests"]
    assert entry["annotations"]["io.containerd.image.name"] == "syncgroup.local/operator:abc"


def test_of_an_image_s_archives_the_newest_few_stay(tmp_path: Path) -> None:
    for age in range(6):
        (tmp_path / f"runtime-{age}.tar").touch()
        os.utime(tmp_path / f"runtime-{age}.tar", (1000 - age, 1000 - age))
    (tmp_path / "operator-0.tar").touch()
    daemonless.prune(IMAGES["runtime"], tmp_path / "runtime-5.tar")
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"runtime-5.tar", "runtime-0.tar", "runtime-1.tar", "operator-0.tar"}


def test_after_our_own_packages_only_those_are_finished(tmp_path: Path, finish: ModuleType) -> None:
    home = tmp_path / "python3.11" / "site-packages"
    for name in ("ours", "theirs"):
        (home / name).mkdir(parents=True)
    assert finish.places(tmp_path, []) == [tmp_path]
    assert finish.places(tmp_path, ["ours"]) == [home / "ours"]
    with pytest.raises(SystemExit, match="not installed: others"):
        finish.places(tmp_path, ["ours", "others"])


def test_of_the_gpu_s_libraries_those_stay_that_torch_loads(tmp_path: Path) -> None:
    cpu = program("examples/cpu.py")
    folder, loaded = tmp_path / "nvidia", frozenset({tmp_path / "nvidia/cu/lib/linked.so.1", tmp_path / "torch.so"})
    for name in ("cu/lib/linked.so.1", "cu/lib/opened.so.1", "cu/include/a.h", "dnn/lib/opened.so.2"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("12345678")
    (folder / "cu/lib/linked.so").symlink_to("linked.so.1")
    (folder / "cu/lib/opened.so").symlink_to("opened.so.1")
    (folder / "cu/headers").symlink_to("include")
    assert cpu.size_bytes(folder) == 32
    cpu.leave_out(folder, loaded)
    assert sorted(str(path.relative_to(folder)) for path in folder.rglob("*")) == [
        "cu", "cu/lib", "cu/lib/linked.so", "cu/lib/linked.so.1",
    ]  # fmt: skip
    assert cpu.size_bytes(folder) == 8


def test_a_torch_that_uses_none_of_the_gpu_s_libraries_beside_it_is_told(tmp_path: Path) -> None:
    (tmp_path / "nvidia").mkdir()
    (tmp_path / "nvidia" / "a.so").touch()
    with pytest.raises(SystemExit, match="torch loads nothing from"):
        program("examples/cpu.py").leave_out(tmp_path / "nvidia", frozenset({tmp_path / "torch.so"}))
    assert (tmp_path / "nvidia" / "a.so").exists()
