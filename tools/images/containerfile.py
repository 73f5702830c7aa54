"""Containerfiles as data, and the rules that ours keep. Pure: text in, findings out; runs no builder."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

LABELS = ("title", "description", "version", "revision", "source", "licenses")
INSTALL = re.compile(r"pip(?: --python \S+)? install\b")
REQUIREMENTS = re.compile(r"-r (\S+)")


class Instruction(NamedTuple):
    """One instruction, its continued lines joined."""

    line: int
    word: str
    rest: str


@dataclass(frozen=True)
class Stage:
    """From one FROM to the next."""

    base: str
    name: str
    instructions: tuple[Instruction, ...]

    def all(self, word: str) -> list[Instruction]:
        """The instructions of one kind."""
        return [one for one in self.instructions if one.word == word]


@dataclass(frozen=True)
class Containerfile:
    """A parsed file."""

    arguments: dict[str, str]
    """Before the first stage: name -> default."""
    stages: tuple[Stage, ...]

    @property
    def final(self) -> Stage:
        """What the image is."""
        return self.stages[-1]

    def requirements(self) -> set[str]:
        """The files of pins that pip installs, by their last name."""
        runs = [one.rest for stage in self.stages for one in stage.all("RUN")]
        return {path.rpartition("/")[2] for rest in runs for path in REQUIREMENTS.findall(rest)}

    def labels(self) -> dict[str, str]:
        """Of the final stage."""
        text = " ".join(one.rest for one in self.final.all("LABEL"))
        return dict(re.findall(r'([\w.]+)="([^"]*)"', text))


def parse(text: str) -> Containerfile:
    """The file's stages; comments are dropped."""
    arguments: dict[str, str] = {}
    stages: list[tuple[str, str, list[Instruction]]] = []
    for one in _instructions(text):
        if one.word == "FROM":
            base, _, name = one.rest.partition(" AS ")
            stages.append((base.strip(), name.strip(), []))
        elif stages:
            stages[-1][2].append(one)
        elif one.word == "ARG":
            name, _, default = one.rest.partition("=")
            arguments[name] = default
    return Containerfile(arguments, tuple(Stage(base, name, tuple(found)) for base, name, found in stages))


def _instructions(text: str) -> Iterator[Instruction]:
    held, start = "", 0
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if line.startswith("#") or (not line and not held):
            continue
        start = start if held else number
        held += line.removesuffix("\\")
        if line.endswith("\\"):
            continue
        word, _, rest = held.partition(" ")
        yield Instruction(start, word.upper(), " ".join(rest.split()))
        held = ""


def findings(file: Containerfile) -> Iterator[str]:
    """Every rule that a file breaks, as a sentence."""
    yield from _about_stages(file)
    yield from _about_packages(file)
    yield from _about_the_final(file)


def _about_stages(file: Containerfile) -> Iterator[str]:
    if len(file.stages) < 2:
        yield "it has one stage: what builds must not be in what runs."
    if "BASE_IMAGE" not in file.arguments:
        yield "BASE_IMAGE is no build argument: nobody could mirror or pin the base."
    for stage in file.stages:
        if not stage.base.startswith("${"):
            yield f"the stage from {stage.base} cannot be given another base."


def _about_packages(file: Containerfile) -> Iterator[str]:
    for stage in file.stages:
        for one in stage.all("RUN"):
            for install in one.rest.split("&&"):
                is_own = "--no-index" in install  # our own wheel, from a folder
                if INSTALL.search(install) and not is_own and "--require-hashes" not in install:
                    yield f"line {one.line} installs packages without --require-hashes."
                if INSTALL.search(install) and not is_own and "--only-binary" not in install:
                    yield f"line {one.line} may compile packages, with a compiler that is not pinned."


def _about_the_final(file: Containerfile) -> Iterator[str]:
    final = file.final
    users = final.all("USER")
    if not users or not re.fullmatch(r"[1-9]\d*:[1-9]\d*", users[-1].rest):
        yield "its user is not a number other than root's: `runAsNonRoot` could not be checked."
    elif final.instructions.index(users[-1]) < max(map(final.instructions.index, final.all("COPY")), default=0):
        yield "files are copied after USER: they would be that user's to change."
    if any(INSTALL.search(one.rest) for one in final.all("RUN")):
        yield "its final stage runs pip."
    found = file.labels()
    for label in LABELS:
        if not found.get(f"org.opencontainers.image.{label}"):
            yield f"the label {label} is missing."
    entry = final.all("ENTRYPOINT")
    if not entry or not isinstance(_json(entry[-1].rest), list):
        yield "its entry point is not a list: a shell would stand between signals and the program."


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return None
