"""What a person sees: a screen that fits the terminal, plain lines elsewhere."""

from __future__ import annotations

import io
import re

import pytest

from tests.unit.demo.scenes import scene, steps, with_member
from tools.demo import screen
from tools.demo.facts import Scene
from tools.demo.screen import Outcome, View
from tools.demo.story import FULL, THIN, story
from tools.demo.terminal import Terminal

STYLE = re.compile(r"\x1b\[\d+m")


def view(now: Scene) -> View:
    outcomes = (Outcome("start", "they start", "3 rollouts serve", 50.0, 20.0),)
    return View(now, story(FULL, shaped=True)[1], 2, 9, 61.0, 1_300_000, outcomes)


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (60, 10), (20, 3)])
def test_a_screen_fits_its_terminal(width: int, height: int) -> None:
    lines = screen.screen(view(scene()), width, height)
    assert len(lines) < max(height, 2)
    assert all(len(STYLE.sub("", line)) <= max(width, screen.MIN_WIDTH) for line in lines)


def test_a_screen_has_versions_lag_payload_streams_bucket_and_reward() -> None:
    text = STYLE.sub("", "\n".join(screen.screen(view(with_member(scene(), THIN, seq=38)), 120, 50)))
    for wanted in ("demo-eu-west-0", "38", "→ eu-west", "256 KiB", "Tight", "1.3 MB in full", "200 kB (15 %, tight)",
                   "plan 5: measured 20 Mbit/s", "✓ start: 3 rollouts serve", "act 2 of 9"):  # fmt: skip
        assert wanted in text, wanted
    assert re.search(r"demo-eu-west-0 .* 38 +2 ", text), "version and lag"
    assert re.search(r"REWARD +0\.54", text)


def test_a_region_that_is_away_is_shown_as_held() -> None:
    text = "\n".join(screen.screen(view(scene(lost={THIN: "away"})), 120, 50))
    assert "held: cut off" in text


def test_before_the_first_report_there_is_a_screen_too() -> None:
    assert any("no step yet" in line for line in screen.screen(view(Scene()), 100, 40))


def test_progress_is_one_line_without_styles() -> None:
    line = screen.progress(view(scene()))
    assert "\n" not in line
    assert "\x1b" not in line
    assert "version 40, lag 0/0/0, payload 200 kB of 1.3 MB" in line
    assert "eu-west 4 x 256 KiB Tight" in line


def test_a_curve_has_a_bar_per_part_and_never_leaves_its_range() -> None:
    assert screen.spark([0.0, 0.5, 1.0, 2.0, -1.0], 5) == "▁▅██▁"
    assert len(screen.spark([one.reward for one in steps(300)], 40)) == 40
    assert screen.spark([], 10) == ""


def test_without_a_terminal_lines_are_written_and_nothing_is_redrawn() -> None:
    out = io.StringIO()
    with Terminal(out) as terminal:
        terminal.beat("• it begins")
        terminal.show(view(scene()))
        terminal.show(view(scene()))
        terminal.say("the end")
    text = out.getvalue()
    assert "\x1b" not in text
    assert text.count("version 40") == 1, "progress every few seconds only"
    assert text.endswith("the end\n")


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_its_own_screen_back_however_it_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    out = Screen()

    def interrupted() -> None:
        with Terminal(out) as terminal:
            terminal.show(view(scene()))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    text = out.getvalue()
    assert text.startswith("\x1b[?1049h")
    assert text.endswith("\x1b[?1049l")


def test_a_terminal_may_be_told_to_be_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    out = Screen()
    with Terminal(out, plain=True) as terminal:
        terminal.show(view(scene()))
    assert "\x1b" not in out.getvalue()
