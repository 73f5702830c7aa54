"""A folder with files in it, to run a check on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str], Path]:
    """`write(path, text)`: a file below the folder that is checked; gives that folder."""

    def write_file(path: str, text: str) -> Path:
        place = tmp_path / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
        return tmp_path

    return write_file
