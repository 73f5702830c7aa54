"""Files and functions that are too long are found; the list of exceptions stays honest."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tools.checks import sizes

Write = Callable[[str, str], Path]


def function(lines: int, head: str = "def walk() -> None:") -> str:
    return head + "\n" + "    pass\n" * (lines - 1)


def test_what_is_just_short_enough_passes(write: Write) -> None:
    write("function.py", function(sizes.FUNCTION_LINES))
    root = write("file.py", "\n" * sizes.FILE_LINES)
    assert list(sizes.check(root)) == []


def test_a_file_that_is_one_line_too_long_is_found(write: Write) -> None:
    (finding,) = sizes.check(write("long.py", "\n" * (sizes.FILE_LINES + 1)))
    assert str(finding).startswith("long.py:1: 401 lines, more than 400")


@pytest.mark.parametrize(
    "source",
    [
        pytest.param("\n" + function(61), id="function"),
        pytest.param("\n" + function(61, "async def walk() -> None:"), id="coroutine"),
        pytest.param("class A:\n    def walk(self) -> None:\n" + "        pass\n" * 60, id="method"),
        pytest.param("def outer() -> None:\n    def walk() -> None:\n" + "        pass\n" * 60, id="inner function"),
    ],
)
def test_a_function_that_is_one_line_too_long_is_found(source: str, write: Write) -> None:
    messages = [str(finding) for finding in sizes.check(write("long.py", source))]
    assert any(message.startswith("long.py:2: walk has 61 lines, more than 60") for message in messages)


@pytest.mark.parametrize("folder", ["sync_runtime/delta/kernels", "sync_runtime/codec/gpu"])
def test_kernels_may_be_as_long_as_they_are(folder: str, write: Write) -> None:
    assert list(sizes.check(write(f"{folder}/extract.py", function(500)))) == []


def test_an_exception_is_granted_by_name(write: Write) -> None:
    allowed = {"long.py": "a table of states", "long.py::walk": "one case a state"}
    assert list(sizes.check(write("long.py", function(500)), allowed)) == []


def test_an_exception_that_is_not_needed_any_more_is_found(write: Write) -> None:
    (finding,) = sizes.check(write("short.py", ""), {"short.py::walk": "was long once"})
    assert "short.py::walk is short enough now" in str(finding)


def test_other_languages_are_left_alone(write: Write) -> None:
    assert list(sizes.check(write("long.go", "\n" * 1000))) == []


def test_the_command_fails_where_there_is_something_to_mend(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    root = write("long.py", "\n" * 1000)
    assert sizes.main([str(root)]) == 1
    assert "long.py:1: 1000 lines" in capsys.readouterr().out


def test_the_command_passes_where_there_is_nothing(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    assert sizes.main([str(write("short.py", ""))]) == 0
    assert capsys.readouterr().out == "sizes: clean\n"


def test_the_command_says_why_it_could_not_run(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    assert sizes.main([str(write("odd.py", "def (:\n"))]) == 2
    assert capsys.readouterr().err.startswith("error: odd.py:1 is not valid Python")
