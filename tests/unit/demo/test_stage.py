"""The demo's run: beats in order, each until its facts are seen, an error with a sentence where they are not."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from tests.unit.demo.scenes import ended, member, scene, with_member
from tools.demo.facts import Scene
from tools.demo.screen import View
from tools.demo.stage import Record, Stage, StoryError
from tools.demo.story import FAR, HUB, Beat, Until


class Theatre:
    """A clock, a watcher and a terminal that need no time."""

    def __init__(self, scenes: Iterable[Scene]) -> None:
        self.now_s = 100.0
        self.said: list[str] = []
        self.views: list[View] = []
        self.acts: list[str] = []
        self._scenes = list(scenes)

    def look(self) -> Scene:
        return self._scenes.pop(0) if len(self._scenes) > 1 else self._scenes[0]

    def show(self, view: View) -> None:
        self.views.append(view)

    def beat(self, text: str) -> None:
        self.said.append(text)

    def sleep(self, duration_s: float) -> None:
        self.now_s += duration_s

    def stage(self, *beats: Beat) -> Stage:
        return Stage(
            beats, self, self, self.acts.append, 1_000_000, clock=lambda: self.now_s, sleep=self.sleep
        )  # fmt: skip


def beat(until: Until, *, action: str | None = None, ends_act: bool = True) -> Beat:
    return Beat("kill", "somebody is stopped", "a successor", until, 10.0, action=action, ends_act=ends_act)


def at_version(seq: int) -> Callable[[Scene, Scene], str | None]:
    return lambda _before, now: f"version {now.seq}" if (now.seq or 0) >= seq else None


def test_a_beat_lasts_until_its_facts_are_seen() -> None:
    theatre = Theatre(scene(seq=seq) for seq in (1, 2, 3, 4))
    record = theatre.stage(beat(at_version(3), action="freeze"), beat(at_version(4))).run()
    assert theatre.acts == ["freeze"]
    assert [one.seen for one in record.outcomes] == ["version 3", "version 4"]
    assert record.outcomes[0].took_s == pytest.approx(2.0)
    assert [one.seq for one in record.samples] == [1, 2, 3, 4]
    assert [view.number for view in theatre.views] == [1, 1, 1, 2]


def test_what_was_there_before_the_action_is_what_facts_are_held_against() -> None:
    held: list[int | None] = []

    def until(before: Scene, now: Scene) -> str | None:
        held.append(before.seq)
        return "seen" if (now.seq or 0) > 2 else None

    Theatre(scene(seq=seq) for seq in (1, 2, 3)).stage(beat(at_version(1)), beat(until)).run()
    assert held == [1, 1]


def test_facts_that_do_not_come_end_the_run_with_a_sentence() -> None:
    theatre = Theatre([scene(seq=1)])
    stage = theatre.stage(beat(at_version(3)))
    with pytest.raises(StoryError, match=r"kill: waited 10 s for a successor, in vain\."):
        stage.run()
    assert stage.record.samples, "what was seen stays for the page"


def test_other_bits_end_the_run_at_once() -> None:
    whole = ended()
    wrong = replace(whole, sums={**whole.sums, f"demo-{FAR}-0": (40, "00" * 32)})
    theatre = Theatre([wrong])
    with pytest.raises(StoryError, match="demo-ap-south-0 and the trainer differ in version 40"):
        theatre.stage(beat(at_version(99))).run()
    assert theatre.now_s == 100.0


def test_a_beat_between_two_acts_is_not_among_what_was_promised() -> None:
    record = Theatre([scene()]).stage(beat(at_version(1), ends_act=False)).run()
    assert record.outcomes == []


def test_times_are_taken_once_per_version_and_member() -> None:
    record = Record()
    one = scene(members=(member(HUB, seq=1, sync_millis=100, pause_millis=3),), seq=1)
    for seen in (one, one, with_member(one, HUB, seq=2, sync_millis=300, pause_millis=None)):
        record.take(seen, 0.0)
    assert record.sync_millis == [100, 300]
    assert record.pause_millis == [3]
