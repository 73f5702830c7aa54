"""Fixtures of the link emulator's unit tests: one direction of a link in virtual time, and the real program with ports
that lead nowhere (no privilege, no network)."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tools.linkemu import Emulator, EmulatorOptions, RegionPort
from tools.linkemu.native import SOURCES, build

Play = Callable[..., list[list[str]]]


@pytest.fixture(scope="session")
def virtual_link() -> Path:
    """The emulator's shaper and lines, as a program that reads virtual time."""
    sources = [SOURCES / name for name in ("base.c", "line.c", "parse.c", "shape_keys.c", "shaper.c")]
    return build("virtual-link", [Path(__file__).with_name("virtual_link.c"), *sources])


@pytest.fixture
def play(virtual_link: Path) -> Play:
    """Plays lines to a fresh link and returns the words of each answer."""

    def run(lines: Sequence[str], seed: int = 1) -> list[list[str]]:
        text = "\n".join(lines) + "\n"
        done = subprocess.run(
            [virtual_link, str(seed)], input=text, capture_output=True, text=True, check=True, timeout=60
        )
        answers = [line.split() for line in done.stdout.splitlines()]
        assert len(answers) == len(lines)
        return answers

    return run


@pytest.fixture
def emulator(tmp_path: Path) -> Iterator[Emulator]:
    """The real program between three regions that swallow everything."""
    ports = [RegionPort(name=name, kind="null", prefixes=(f"10.0.{i}.0/24",)) for i, name in enumerate("abc")]
    with Emulator.start(ports, options=EmulatorOptions(socket_path=tmp_path / "control")) as running:
        yield running
