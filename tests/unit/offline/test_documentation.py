"""The guide to deltas runs as it stands: every block of it, in order, in an empty folder."""

import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import sync_runtime.errors
import sync_runtime.offline
from sync_runtime.offline import load
from syncgroup import cli
from tests.support.checkpoints import save_file
from tests.support.states import small_state

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "delta.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks() -> list[tuple[str, str]]:
    return [(found[1], found[2]) for found in BLOCK.finditer(GUIDE.read_text(encoding="utf-8"))]


def run_python(text: str, folder: Path) -> None:
    script = folder / "example.py"
    script.write_text(text, encoding="utf-8")
    runpy.run_path(str(script), run_name="__main__")


def run_shell(text: str) -> None:
    """In this process: a dozen interpreters would take longer than everything else."""
    for line in text.splitlines():
        program, *words = shlex.split(line)
        assert (program, cli.main(words)) == ("syncgroup", 0), line


@pytest.mark.timeout(60)
def test_every_example_runs_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="torch is not installed: the examples make their checkpoints with it")
    monkeypatch.chdir(tmp_path)
    for language, text in blocks():
        if language == "python":
            run_python(text, tmp_path)
        else:
            run_shell(text)
    files = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert files["rebuilt.safetensors"] == files["step1.safetensors"]
    assert files["back.safetensors"] == files["step0.safetensors"]
    assert load(tmp_path / "01.sgd").manifest.label == "step 1"


def test_the_guide_shows_every_language_that_it_uses() -> None:
    assert {language for language, _ in blocks()} == {"python", "sh"}


def test_every_public_name_is_in_the_guide_and_every_error_in_it_exists() -> None:
    text = GUIDE.read_text(encoding="utf-8")
    missing = [name for name in sync_runtime.offline.__all__ if not re.search(rf"\b{name}\b", text)]
    assert missing == ["Delta"], "what `diff` returns needs no entry of its own"
    named = set(re.findall(r"\b[A-Z]\w+Error\b", text))
    assert len(named) > 10
    assert all(hasattr(sync_runtime.errors, name) for name in named)


@pytest.mark.timeout(30)
def test_bad_input_ends_as_the_guide_says(tmp_path: Path) -> None:
    base = save_file(tmp_path / "base.safetensors", small_state())
    program = Path(sys.executable).with_name("syncgroup")
    if not program.exists():
        pytest.skip("the package is not installed in this environment")
    command: list[str | Path] = [program, "delta", "encode", base, tmp_path / "missing", "-o", tmp_path / "x.sgd"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr.count("\n")) == (2, 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["base.safetensors"]
