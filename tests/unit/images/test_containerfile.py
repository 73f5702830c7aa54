"""Containerfiles: ours keep every rule and agree with the pins; each rule is seen to break."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sync_runtime.contract import names
from syncgroup_operator.manifests.sidecar import PROGRAM, RUNTIME_USER
from tools.images import __main__ as command
from tools.images.catalog import IMAGES, ROOT, Image
from tools.images.containerfile import findings, parse

EVERY = pytest.mark.parametrize("image", IMAGES.values(), ids=list(IMAGES))
GOOD = IMAGES["operator"].path.read_text()


@EVERY
def test_our_files_keep_every_rule(image: Image) -> None:
    assert list(findings(parse(image.path.read_text()))) == []


@EVERY
def test_an_image_installs_the_pins_that_its_entry_names_and_those_of_the_build(image: Image) -> None:
    file = parse(image.path.read_text())
    assert file.requirements() == {*image.requirements, "build.txt"}
    copied = {word for stage in file.stages for one in stage.all("COPY") for word in one.rest.split()}
    for name in file.requirements():
        assert (ROOT / "requirements" / name).is_file()
        assert f"requirements/{name}" in copied


@EVERY
def test_what_an_image_copies_is_in_the_checkout_reaches_the_builder_and_counts_in_its_fingerprint(
    image: Image,
) -> None:
    ignored = (ROOT / ".containerignore").read_text().splitlines()
    let_through = {line[1:] for line in ignored if line.startswith("!")}
    parts = set(image.parts())
    for stage in parse(image.path.read_text()).stages:
        for one in stage.all("COPY"):
            sources = [word for word in one.rest.split()[:-1] if not word.startswith("--")]
            for source in [] if "--from=" in one.rest else sources:
                assert (ROOT / source).exists(), source
                assert source.partition("/")[0] in let_through, source
                assert any(path == ROOT / source or path.is_relative_to(ROOT / source) for path in parts), source


def test_docker_and_the_others_leave_out_the_same() -> None:
    assert (ROOT / ".dockerignore").read_text() == (ROOT / ".containerignore").read_text()


def test_the_runtime_s_image_answers_to_the_name_and_user_that_the_operator_uses() -> None:
    final = parse(IMAGES["runtime"].path.read_text()).final
    (entry,), (user,), variables = final.all("ENTRYPOINT"), final.all("USER"), final.all("ENV")
    assert json.loads(entry.rest) == [PROGRAM, "sidecar"]
    assert user.rest == f"{RUNTIME_USER}:{RUNTIME_USER}"
    assert any(f"NUMBA_CACHE_DIR={names.TMP_DIR}/" in one.rest for one in variables), "on the sidecar's own volume"
    assert any(one.rest.endswith(f"/bin/{PROGRAM}") for one in final.all("COPY")), "in the place of pip's own script"


def test_only_the_images_that_need_torch_get_it() -> None:
    heavy = {name for name, image in IMAGES.items() if {"library.txt", "examples.txt"} & set(image.requirements)}
    assert heavy == {name for name, image in IMAGES.items() if image.huge} == {"cuda", "examples"}


def test_lines_are_joined_and_comments_dropped() -> None:
    file = parse("# a\nARG A=1\nFROM ${A} AS one\nRUN x \\\n  # why\n    y\n\nFROM ${A}\nCOPY --from=one /a /b\n")
    assert file.arguments == {"A": "1"}
    assert [(stage.base, stage.name) for stage in file.stages] == [("${A}", "one"), ("${A}", "")]
    (run,) = file.stages[0].instructions
    assert (run.line, run.word, run.rest) == (4, "RUN", "x y")


@pytest.mark.parametrize(
    ("old", "new", "finding"),
    [
        ("ARG BASE_IMAGE=", "ARG OTHER=", "BASE_IMAGE is no build argument"),
        ("FROM ${BASE_IMAGE}\n", "FROM debian:12\n", "cannot be given another base"),
        ("--require-hashes --only-binary :all: -r /build/build.txt", "--only-binary :all: hatchling", "without --requ"),
        ("--require-hashes --only-binary :all: --no-compile", "--require-hashes --no-compile", "may compile packages"),
        ("USER 65532:65532\n", "", "not a number"),
        ("USER 65532:65532\n", "USER nobody\n", "not a number"),
        ("USER 65532:65532\n", "USER 0:0\n", "not a number"),
        ("USER 65532:65532\n", "USER 65532:65532\nCOPY a /b\n", "copied after USER"),
        ("USER 65532:65532\n", "RUN pip install --require-hashes --only-binary :all: -r a\nUSER 1:1\n", "runs pip"),
        ('org.opencontainers.image.licenses="Apache-2.0"', 'x="y"', "the label licenses is missing"),
        ('["python", "-m", "syncgroup_operator"]', "python -m syncgroup_operator", "not a list"),
    ],
)
def test_a_broken_rule_is_told(old: str, new: str, finding: str) -> None:
    assert old in GOOD
    assert any(finding in found for found in findings(parse(GOOD.replace(old, new))))


def test_one_stage_is_one_too_few() -> None:
    text = GOOD[GOOD.index("FROM ${BASE_IMAGE}\n") :]
    assert any("one stage" in found for found in findings(parse(text)))


def test_a_broken_file_ends_the_check_with_its_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert command.main(["check"]) == 0
    assert capsys.readouterr().out == ""
    broken = tmp_path / "Containerfile"
    broken.write_text(GOOD.replace("USER 65532:65532\n", ""))
    monkeypatch.setitem(IMAGES, "operator", Image("operator", "operator", str(broken), ()))
    assert command.main(["check"]) == 1
    assert str(broken) in capsys.readouterr().out
