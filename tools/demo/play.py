"""What is played: the tiny model with everything that breaks and heals, or SmolLM2 that learns in peace."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from tools import images
from tools.demo import group, smollm2
from tools.demo.group import Document, Programs
from tools.demo.story import FULL, SHORT, Beat, story
from tools.errors import ToolError

Say = Callable[[str], None]


@dataclass(frozen=True)
class Play:
    """A group, what runs in it, and what must be seen."""

    document: Document
    programs: Programs
    full_bytes: int
    """All weights as they would travel without a delta."""
    beats: Callable[[bool], list[Beat]]
    """By whether links can be shaped."""
    about: str
    """What is played, in a sentence or two."""
    archives: tuple[str, ...] = ()
    """Images that nodes need beside those of the operator and the sidecar."""
    needs_nodes: bool = False


def tiny(*, short: bool) -> Play:
    """The whole story."""
    pace = SHORT if short else FULL
    return Play(
        group.load(), group.DEFAULT, group.full_bytes(), lambda shaped: story(pace, shaped=shaped), about=group.ABOUT
    )


def small_llm(steps: int, *, from_image: bool, say: Say) -> Play:
    """SmolLM2; its file is fetched where the user's cache has none, and the image built where one is wanted."""
    say("the file of SmolLM2-135M, from the cache or fetched")
    programs = Programs(smollm2.RUN, model=_model_file())
    archives: tuple[str, ...] = ()
    if from_image:
        say("the examples' image, from the cache or built (many minutes the first time)")
        built = images.ensure("examples")
        programs, archives = replace(programs, image=built.reference), (str(built.archive),)
    return Play(
        smollm2.patient(group.load()), programs, smollm2.full_bytes(), lambda _: smollm2.story(steps),
        about=smollm2.ABOUT, archives=archives, needs_nodes=True,
    )  # fmt: skip


def _model_file() -> Path:
    from examples.grpo.smollm2 import MissingModelError, cached  # noqa: PLC0415 torch, which the tiny one does not need

    try:
        return cached()
    except MissingModelError as error:
        raise ToolError(str(error)) from error
