"""What the operating system refuses becomes one sentence that says what to do."""

from __future__ import annotations

import errno
import os

import pytest

from tools.errors import sentence_for


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "The disk is full (/a/b); free some room"),
        (errno.EDQUOT, "The disk is full (/a/b); free some room"),
        (errno.EACCES, "Permission was denied (/a/b); mend its mode or owner"),
        (errno.EROFS, "Permission was denied (/a/b); mend its mode or owner"),
        (errno.EMFILE, "Too many files are open; raise `ulimit -n`"),
        (errno.ENOTDIR, "A file stands where a folder should be, or the other way round (/a/b); move it away"),
        (errno.EIO, "The operating system answered: Input/output error (/a/b)"),
    ],
)
def test_each_refusal_names_place_and_remedy(number: int, words: str) -> None:
    sentence = sentence_for(OSError(number, os.strerror(number), "/a/b"))
    assert sentence.startswith(words)
    assert sentence.endswith(".")
    assert "\n" not in sentence


def test_an_error_without_a_file_is_a_sentence_too() -> None:
    assert sentence_for(OSError(errno.ENOSPC, "x")) == (
        "The disk is full; free some room, then run the same command again."
    )
    assert "answered: odd" in sentence_for(OSError("odd"))
