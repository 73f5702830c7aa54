"""`make images`: which builder is taken, with which words, and what is said where there is none."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tools.errors import BuildError, HostError, ToolError
from tools.images import __main__ as command
from tools.images import engines
from tools.images.catalog import IMAGES, ROOT, build_arguments, chosen
from tools.images.engines import Wish

SCRIPT = """\
#!/bin/sh
if [ "$1" = info ]; then {info}; fi
printf '%s\\n' "$@" >> "{log}"
exit {code}
"""


def install(folder: Path, name: str, *, info: str = "exit 0", code: int = 0) -> Path:
    """A program that stands for a builder: it writes its words down."""
    log = folder / f"{name}.log"
    path = folder / name
    path.write_text(SCRIPT.format(info=info, log=log, code=code))
    path.chmod(0o755)
    return log


@pytest.fixture
def bin_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder with programs, apart from those of the shell."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(os, "environ", dict(os.environ))
    return tmp_path


def test_the_first_builder_that_works_is_taken(bin_folder: Path) -> None:
    install(bin_folder, "docker", info="echo no daemon >&2; exit 1")
    install(bin_folder, "buildah")
    assert engines.find() == "buildah"
    with pytest.raises(HostError, match=r"docker does not work \(no daemon\)"):
        engines.find("docker")


def test_without_a_builder_the_sentence_names_each_and_the_other_way(bin_folder: Path) -> None:
    install(bin_folder, "docker", info="echo is it running? >&2; exit 1")
    with pytest.raises(HostError) as caught:
        engines.find()
    assert "docker does not work (is it running?); podman is not installed; buildah is not installed" in str(
        caught.value
    )
    assert "make test-images" in str(caught.value)
    with pytest.raises(HostError, match="there is no builder kaniko here"):
        engines.find("kaniko")


def test_a_builder_gets_bases_labels_and_secrets() -> None:
    wish = Wish(prefix="registry.example/ml/", tag="7", base_image="mirror.example/python:1", build_image="b:1")
    secrets = {"pip.conf": Path("/s/pip.conf")}
    words = engines.command("podman", IMAGES["cuda"], wish, arguments={"VERSION": "0.1"}, secrets=secrets)
    assert words == [
        "podman", "build", "--file", "images/runtime/Containerfile.cuda",
        "--tag", "registry.example/ml/runtime-cuda:7", "--secret=id=pip.conf,src=/s/pip.conf",
        "--build-arg=BASE_IMAGE=mirror.example/python:1", "--build-arg=BUILD_IMAGE=b:1", "--build-arg=VERSION=0.1", ".",
    ]  # fmt: skip
    plain = engines.command("buildah", IMAGES["operator"], Wish(), arguments={"VERSION": "0.1"}, secrets={})
    assert plain[-5:] == ["--tag", "syncgroup/operator:0.1", "--layers", "--build-arg=VERSION=0.1", "."]


def test_names_are_those_that_the_chart_expects() -> None:
    chart = (ROOT / "charts" / "syncgroup" / "values.yaml").read_text()
    for name in ("operator", "runtime"):
        repository = engines.reference(IMAGES[name], Wish(), "1").partition(":")[0]
        assert f"repository: {repository}\n" in chart


def test_the_command_builds_the_small_images_and_says_so(bin_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = install(bin_folder, "podman")
    assert command.main(["build", "--tag", "9"]) == 0
    assert "building syncgroup/operator:9 with podman" in capsys.readouterr().out
    files = [line for line in log.read_text().splitlines() if line.startswith("images/")]
    assert files == ["images/operator/Containerfile", "images/runtime/Containerfile"]


def test_a_builder_that_fails_ends_the_command(bin_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    install(bin_folder, "podman", code=3)
    assert command.main(["build", "operator"]) == 2
    assert "podman could not build syncgroup/operator:" in capsys.readouterr().err
    with pytest.raises(BuildError):
        engines.build("podman", [IMAGES["operator"]], Wish(), lambda _: None)


def test_an_image_that_does_not_exist_is_told() -> None:
    assert [one.name for one in chosen([])] == ["operator", "runtime"]
    assert [one.name for one in chosen(["cuda", "operator", "cuda"])] == ["cuda", "operator"]
    with pytest.raises(ToolError, match="there are operator, runtime, cuda, examples"):
        chosen(["trainer"])


def test_labels_know_the_version_and_no_folder_of_this_machine() -> None:
    found = build_arguments()
    assert found["VERSION"]
    assert not any(value.startswith("/") for value in found.values())
    assert json.dumps(found)
