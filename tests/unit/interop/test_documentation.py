"""The guide to other tools' deltas runs as it stands, and names every format and variant that there is."""

import runpy
import shlex
from pathlib import Path

import pytest

from sync_runtime.offline.interop.registry import FORMATS
from syncgroup import cli
from tests.support.pages import REPOSITORY, blocks

GUIDE = REPOSITORY / "docs" / "interop.md"


@pytest.mark.timeout(60)
def test_every_example_runs_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("safetensors", "zstandard"):
        pytest.importorskip(package, reason=f"{package} is not installed: the examples use it")
    monkeypatch.chdir(tmp_path)
    for block in blocks(GUIDE):
        if block.language == "python":
            (tmp_path / "example.py").write_text(block.text, encoding="utf-8")
            runpy.run_path(str(tmp_path / "example.py"), run_name="__main__")
        else:
            for line in block.text.splitlines():  # in this process: a dozen interpreters would take longer
                program, *words = shlex.split(line)
                assert (program, cli.main(words)) == ("syncgroup", 0), line
    deltas = [(tmp_path / f"{name}.sgd").read_bytes() for name in ("a", "b", "c")]
    assert len({delta[: delta.index(b'{"block_elements"')] for delta in deltas}) == 1


def test_the_guide_shows_both_languages() -> None:
    assert {block.language for block in blocks(GUIDE)} == {"python", "sh"}


def test_every_format_variant_and_key_is_in_the_guide() -> None:
    text = GUIDE.read_text(encoding="utf-8")
    for entry in FORMATS.values():
        for word in (entry.name, *entry.variants, *entry.meta):
            assert f"`{word}`" in text, word
