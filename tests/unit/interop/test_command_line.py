"""`syncgroup delta import|export`: files and folders in, files and folders out; a sentence where something is wrong."""

import json
import sys
from pathlib import Path

import pytest

from sync_runtime.offline import load
from sync_runtime.offline.interop.registry import FORMATS
from syncgroup import cli
from tests.support.checkpoints import save_file, save_folder
from tests.support.interop import EVERY_VARIANT, bf16_next, bf16_state, read_state, saved
from tests.support.states import same_bits

Files = tuple[Path, Path, Path]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """Base, new and delta."""
    before = bf16_state()
    case = saved(tmp_path, before, bf16_next(before))
    case.delta.save(tmp_path / "step.sgd")
    return case.base, case.new, tmp_path / "step.sgd"


def run(*words: object) -> int:
    return cli.main(["delta", *map(str, words)])


@pytest.mark.parametrize(("name", "variant"), EVERY_VARIANT)
def test_export_and_import_lead_to_the_same_state(tmp_path: Path, files: Files, name: str, variant: str) -> None:
    base, new, step = files
    out, again = tmp_path / "foreign", tmp_path / "again.sgd"
    assert run("export", step, "--base", base, "--format", name, "--variant", variant, "-o", out) == 0
    assert run("import", out, "--base", base, "--format", name, "-o", again, "--codec", "tight") == 0
    assert run("verify", base, again, new) == 0


def test_the_first_variant_is_the_default(tmp_path: Path, files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    base, _, step = files
    assert run("export", step, "--base", base, "--format", "pulse", "-o", tmp_path / "p", "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["variant"] == FORMATS["pulse"].variants[0] == "pulsept1-v1"
    assert facts["changed"] == load(step).manifest.num_changed


def test_import_says_what_was_verified(tmp_path: Path, files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    base, _, step = files
    run("export", step, "--base", base, "--format", "trl-safetensors", "-o", tmp_path / "t")
    capsys.readouterr()
    assert run("import", tmp_path / "t", "--base", base, "--format", "trl-safetensors", "-o", tmp_path / "a.sgd") == 0
    assert "nothing: the format has no checksum" in capsys.readouterr().out
    assert (
        run(
            "import",
            tmp_path / "t",
            "--base",
            base,
            "--format",
            "trl-safetensors",
            "-o",
            tmp_path / "a.sgd",
            "--label",
            "x",
        )
        == 0
    )
    assert load(tmp_path / "a.sgd").manifest.label == "x"


def test_a_folder_becomes_one_that_from_pretrained_takes(tmp_path: Path, files: Files) -> None:
    folder, out = save_folder(tmp_path / "hf", read_state(files[0])), tmp_path / "next"
    (folder / "config.json").write_text("{}")
    (folder / "tokenizer.model").write_bytes(b"tokens")
    (folder / "pytorch_model.bin").write_bytes(b"old weights")
    (folder / "stale.safetensors").write_bytes(b"older weights")
    assert run("export", files[2], "--base", folder, "--format", "dense-safetensors", "-o", out) == 0
    assert same_bits(read_state(out), read_state(files[1]))
    assert sorted(path.name for path in out.iterdir()) == [
        "config.json",
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
        "model.safetensors.index.json",
        "tokenizer.model",
    ]
    assert run("import", out, "--base", folder, "--format", "dense-safetensors", "-o", tmp_path / "again.sgd") == 0
    assert load(tmp_path / "again.sgd").target.digest == load(files[2]).target.digest


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["export", "{step}", "--base", "{new}", "--format", "pulse", "-o", "{out}"], "already"),
        (["export", "{step}", "--base", "{other}", "--format", "pulse", "-o", "{out}"], "starts from"),
        (["export", "{step}", "--base", "{base}", "--format", "pulse", "-o", "{out}/deeper"], "no folder"),
        (["export", "{step}", "--base", "{base}", "--format", "pulse", "--variant", "v9", "-o", "{out}"], "v9"),
        (
            ["export", "{step}", "--base", "{base}", "--format", "pulse", "--meta", "colour=red", "-o", "{out}"],
            "colour",
        ),
        (["export", "{step}", "--base", "{base}", "--format", "pulse", "--meta", "step=x", "-o", "{out}"], "a number"),
        (["import", "{base}", "--base", "{base}", "--format", "pulse", "-o", "{out}"], "no zstd frame"),
        (["import", "{base}", "--base", "{base}", "--format", "trl-safetensors", "-o", "{out}"], "dense-safetensors"),
        (["import", "{base}", "--base", "{base}", "--format", "xor-zstd", "-o", "{out}"], "either"),
        (["import", "{missing}", "--base", "{base}", "--format", "pulse", "-o", "{out}"], "No such file"),
        (["import", "{part}", "--base", "{base}", "--format", "dense-safetensors", "-o", "{out}"], "every tensor"),
    ],
)
def test_bad_input_ends_in_a_sentence_and_leaves_nothing_behind(
    tmp_path: Path, files: Files, capsys: pytest.CaptureFixture[str], words: list[str], sentence: str
) -> None:
    state = read_state(files[0])
    names = {
        "base": files[0],
        "new": files[1],
        "step": files[2],
        "other": save_file(tmp_path / "other.safetensors", bf16_state(40)),
        "part": save_file(tmp_path / "part.safetensors", {"model.one": state["model.one"]}),
        "missing": tmp_path / "missing",
        "out": tmp_path / "out",
    }
    before = sorted(tmp_path.iterdir())
    assert run(*(word.format(**names) for word in words)) == 2
    assert sentence in capsys.readouterr().err
    assert sorted(tmp_path.iterdir()) == before


def test_formats_without_zstd_work_where_the_package_is_missing(
    tmp_path: Path, files: Files, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    base, _, step = files
    for name, code in (("trl-safetensors", 0), ("dense-safetensors", 0), ("xor-zstd", 2)):
        assert run("export", step, "--base", base, "--format", name, "-o", tmp_path / name) == code
    assert "extra `interop`" in capsys.readouterr().err
    assert not (tmp_path / "xor-zstd").exists()
