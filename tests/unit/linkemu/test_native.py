from __future__ import annotations

from pathlib import Path

import pytest

from tools.errors import BuildError, HostError
from tools.linkemu import native

pytestmark = pytest.mark.timeout(60)  # a compiler runs


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "program.c"
    path.write_text("int main(void) { return 7; }\n")
    return path


def _cached_files(tmp_path: Path) -> list[Path]:
    return [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


def test_a_program_is_built_once_and_then_found(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = native.build("program", [source])
    monkeypatch.setattr(native, "_compile", lambda *_: pytest.fail("compiled again"))
    assert native.build("program", [source]) == built


def test_a_changed_source_or_flag_is_another_program(source: Path) -> None:
    built = {native.build("program", [source]), native.build("program", [source], ["-O1"])}
    source.write_text("int main(void) { return 8; }\n")
    built.add(native.build("program", [source]))
    assert len(built) == 3


def test_a_source_that_does_not_compile_leaves_nothing_that_looks_built(source: Path, tmp_path: Path) -> None:
    source.write_text("int main(void) { return nothing; }\n")
    with pytest.raises(BuildError, match="nothing"):
        native.build("program", [source])
    assert _cached_files(tmp_path) == []


def test_a_missing_compiler_is_one_sentence_that_says_what_to_install(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(HostError, match="install gcc or clang"):
        native.build("program", [source])


def test_a_compiler_named_but_absent_is_named_in_the_sentence(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler -m32")
    with pytest.raises(HostError, match="no-such-compiler"):
        native.build("program", [source])


def test_a_cache_that_cannot_be_written_is_a_sentence(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")
    with pytest.raises(BuildError, match="XDG_CACHE_HOME"):
        native.build("program", [source])


def test_the_emulator_compiles_without_a_single_warning(source: Path) -> None:
    strict = (*native.FLAGS, "-Wpedantic", "-Wconversion", "-Wno-sign-conversion", "-Werror")
    assert native.build("linkemu", sorted(native.SOURCES.glob("*.c")), strict).exists()
