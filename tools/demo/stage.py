"""Runs the acts in order: does what a beat says, looks until its facts are seen, keeps what a page is made of.

Everything that decides is in `story`; this knows time, and the place where things happen.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tools.demo.facts import Link, Scene
from tools.demo.screen import Outcome, View
from tools.demo.story import Beat, differing
from tools.errors import ToolError

LOOK_EVERY_S = 1.0


class StoryError(ToolError):
    """Something that the demo promises was not seen in time, or something was seen that must never be."""


class Looking(Protocol):
    """Sees the group."""

    def look(self) -> Scene:
        """What is there now."""


class Showing(Protocol):
    """Where a person looks."""

    def show(self, view: View) -> None:
        """The view as it is now."""

    def beat(self, text: str) -> None:
        """A line about the story."""


@dataclass(frozen=True)
class Sample:
    """What the plots need of one look."""

    at_s: float
    seq: int | None
    lags: dict[str, int]
    links: dict[str, Link]


@dataclass
class Record:
    """A run as it was."""

    samples: list[Sample] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    scene: Scene = field(default_factory=Scene)
    sync_millis: list[int] = field(default_factory=list)
    pause_millis: list[int] = field(default_factory=list)

    def take(self, scene: Scene, at_s: float) -> None:
        """One look."""
        known = {(one.name, one.seq) for one in self.scene.rollouts}
        for one in scene.rollouts:
            if (one.name, one.seq) not in known:  # figures of a version that a member serves since then
                self.sync_millis += [] if one.sync_millis is None else [one.sync_millis]
                self.pause_millis += [] if one.pause_millis is None else [one.pause_millis]
        lags = {one.region: lag for one in scene.rollouts if (lag := scene.lag(one)) is not None}
        self.samples.append(Sample(at_s, scene.seq, lags, {one.to_region: one for one in scene.links}))
        self.scene = scene


class Stage:
    """One performance."""

    def __init__(
        self,
        beats: Sequence[Beat],
        watcher: Looking,
        terminal: Showing,
        act: Callable[[str], None],
        full_bytes: int,
        *,
        began_s: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._beats, self._watcher, self._terminal, self._act = beats, watcher, terminal, act
        self._full_bytes, self._clock, self._sleep = full_bytes, clock, sleep
        self._began_s = clock() if began_s is None else began_s
        self.record = Record()

    def run(self) -> Record:
        """All beats; raises StoryError at the first one whose facts are not seen."""
        for number, beat in enumerate(self._beats, 1):
            self._play(number, beat)
        return self.record

    def _play(self, number: int, beat: Beat) -> None:
        started_s = self._clock()
        self._terminal.beat(f"• {beat.says} …")
        before = self.record.scene
        if beat.action is not None:
            self._act(beat.action)
        while True:
            scene = self._watcher.look()
            now_s = self._clock()
            self.record.take(scene, now_s - self._began_s)
            seen = beat.until(before, scene)
            self._terminal.show(self._view(number, beat, now_s))
            if seen is not None:
                break
            wrong = differing(scene)
            if wrong is not None:
                raise StoryError(f"{wrong} This must never happen; the page and its figures are kept.")
            if now_s - started_s > beat.limit_s:
                raise StoryError(f"{beat.act}: waited {beat.limit_s:.0f} s for {beat.waits_for}, in vain.")
            self._sleep(max(0.0, LOOK_EVERY_S - (self._clock() - now_s)))
        if beat.ends_act:
            took_s = self._clock() - started_s
            self.record.outcomes.append(Outcome(beat.act, beat.says, seen, now_s - self._began_s, took_s))
            self._terminal.beat(f"  ✓ {seen} ({took_s:.0f} s)")

    def _view(self, number: int, beat: Beat, now_s: float) -> View:
        return View(
            self.record.scene, beat, number, len(self._beats), now_s - self._began_s, self._full_bytes,
            tuple(self.record.outcomes),
        )  # fmt: skip
