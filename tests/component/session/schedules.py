"""Random faults over many versions, seeded and replayable: at the end every member's bits are the trainer's.

    python -m tests.component.session.schedules --seed 7 --count 100 --versions 200
    python -m tests.component.session.schedules --seed 7 --processes      # real sidecar processes, kill -9

The seed decides which fault comes when; how far transfers have come by then is the machine's affair. A schedule that
failed prints its seed and what it had done.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from sync_runtime import Publisher, Subscriber
from sync_runtime.errors import SyncError
from sync_runtime.library.version import Version
from tests.support.groups import TRAINER, Group, Member, wait_for
from tests.support.inside import InsideGroup
from tests.support.models import nudge, same_bits, small_model

MEMBERS = (
    TRAINER,
    Member("eu-0", "eu", ("trainer-0",), relay=True),
    Member("eu-1", "eu", ("eu-0", "trainer-0")),
    Member("eu-2", "eu", ("eu-0", "trainer-0")),
    Member("ap-0", "ap", ("trainer-0",)),
)
ENGINES = ("eu-0", "eu-1", "eu-2", "ap-0")
LEVEL_TIMEOUT_S = 30.0
OPEN_TIMEOUT_S = 30.0
CHECKPOINTS = 4


class Schedule:
    """One group under one sequence of faults."""

    def __init__(self, group: Group, seed: int) -> None:
        self.group, self.seed = group, seed
        self.done: list[str] = []
        self._dice = random.Random(seed)  # noqa: S311 replayable, hides nothing
        self._trained = small_model()
        self._models = {name: small_model() for name in ENGINES}
        self._publisher: Publisher | None = None
        self._subscribers: dict[str, Subscriber] = {}
        self._down: set[str] = set()
        self._checkpoints: list[dict[str, torch.Tensor]] = []
        self._nudges = 0
        self.published = 0

    def run(self, versions: int) -> None:
        """Faults and versions in random order; then everything comes back, and all must be level."""
        try:
            self._play(versions)
            self._settle()
        except BaseException as error:
            error.add_note(f"schedule {self.seed}: " + ", ".join(self.done[-40:]))
            for name, subscriber in self._subscribers.items():
                error.add_note(f"{name} has {subscriber.version}, staged {subscriber.staged}")
                with contextlib.suppress(OSError, LookupError, ValueError):  # its sidecar may be down
                    error.add_note(f"{name}: {self.group.ask(name, '/v1/status')}")
                    error.add_note(f"{name}: {self.group.ask(name, '/v1/versions')}")
            raise
        finally:
            for user in (self._publisher, *self._subscribers.values()):
                if user is not None:
                    user.close()

    def _play(self, versions: int) -> None:
        self.group.start_all()
        self._open_publisher()
        for name in ENGINES:
            self._open_subscriber(name)
        while self.published < versions:
            self._publish()
            for _ in range(self._dice.randrange(3)):
                action, argument = self._draw()
                self.done.append(f"{action.__name__.strip('_')} {argument}".strip())
                action(argument)

    def _draw(self) -> tuple[Callable[[str], None], str]:
        member = self._dice.choice(ENGINES)
        actions: dict[Callable[[str], None], int] = {
            self._activate: 12,
            self._toggle: 4,
            self._replace_user: 2,
            self._lose_weights: 1,
            self._scrub: 1,
            self._damage: 1,
            self._toggle_trainer: 1,
            self._replace_trainer: 1,
            self._go_back: 1,
            self._freeze: 1,
        }
        (action,) = self._dice.choices(list(actions), list(actions.values()))
        return action, member

    # --- what happens ------------------------------------------------------------------------------------------------

    def _publish(self) -> None:
        self._nudges += 1
        nudge(self._trained, self._nudges)
        if TRAINER.name in self._down:
            self._toggle_trainer("")
        version = self._persist()
        self.published += 1
        self.done.append(f"publish {version.seq}")
        self._checkpoints = [*self._checkpoints[1 - CHECKPOINTS :], _copy(self._trained)]

    def _persist(self) -> Version:
        """A trainer tries again while its sidecar is away; whatever it changed is in the next version."""
        end = time.monotonic() + OPEN_TIMEOUT_S
        while True:
            try:
                return self._need_publisher().publish(step=self._nudges)
            except SyncError as error:
                if not error.retry_helps or time.monotonic() > end:
                    raise

    def _activate(self, name: str) -> None:
        with contextlib.suppress(SyncError):
            self._subscribers[name].wait(timeout=self._dice.choice((0.0, 0.05)))
            self._subscribers[name].activate()

    def _toggle(self, name: str) -> None:
        """A sidecar dies, or one that died is back."""
        if name in self._down:
            self._down.discard(name)
            self.group.start(name)
        else:
            self._down.add(name)
            self.group.kill(name)

    def _replace_user(self, name: str) -> None:
        """The engine's process ends and comes back with the weights it had."""
        self._subscribers.pop(name).close()
        self._open_subscriber(name)

    def _lose_weights(self, name: str) -> None:
        """It comes back with weights of its own, or with those that all began with."""
        self._subscribers.pop(name).close()
        self._models[name] = small_model(self._dice.choice((0, 99)))
        self._open_subscriber(name)

    def _scrub(self, name: str) -> None:
        with contextlib.suppress(SyncError):
            self._subscribers[name].scrub()

    def _damage(self, name: str) -> None:
        """A fault in the engine's memory; the next scrub must find it."""
        if self._subscribers[name].version is not None:
            with torch.no_grad():
                next(iter(self._models[name].parameters()))[3, self._dice.randrange(8)] += 1

    def _toggle_trainer(self, _: str) -> None:
        self._toggle(TRAINER.name)

    def _replace_trainer(self, _: str) -> None:
        """The trainer's process ends and comes back where it was."""
        self._need_publisher().close()
        self._open_publisher()

    def _go_back(self, _: str) -> None:
        """It comes back from an older checkpoint."""
        if self._checkpoints:
            self._need_publisher().close()
            self._trained.load_state_dict(self._dice.choice(self._checkpoints))
            self._open_publisher()

    def _freeze(self, name: str) -> None:
        """A sidecar stands still for a while, and knows nothing of it."""
        process = self.group.processes.get(name)
        if process is not None:
            process.send_signal(signal.SIGSTOP)
            time.sleep(self._dice.uniform(0.1, 4.0))
            process.send_signal(signal.SIGCONT)

    # --- the end -----------------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        for name in sorted(self._down):
            self._toggle(name)
        for name in ENGINES:
            if name not in self._subscribers:
                self._open_subscriber(name)
        nudge(self._trained, 0)
        version = self._persist()
        for name in ENGINES:
            wait_for(lambda name=name: self._is_level(name, version), LEVEL_TIMEOUT_S, what=f"{name} at {version}")

    def _is_level(self, name: str, version: Version) -> bool:
        """Whether a member has the version, by its own word, by a scrub, and by its bits."""
        subscriber = self._subscribers[name]
        try:
            subscriber.wait(timeout=0.05)
            subscriber.activate()
            if _name(subscriber.version) != _name(version) or not subscriber.scrub():
                return False
        except SyncError as error:
            if not error.retry_helps:
                raise
            return False
        return same_bits(self._models[name], self._trained)

    # --- users -------------------------------------------------------------------------------------------------------

    def _need_publisher(self) -> Publisher:
        if self._publisher is None:
            raise AssertionError("the trainer is not open")
        return self._publisher

    def _open_publisher(self) -> None:
        if TRAINER.name in self._down:
            self._toggle(TRAINER.name)
        self._publisher = Publisher(
            self._trained, socket=self.group.socket(TRAINER.name), timeout=OPEN_TIMEOUT_S, patience=OPEN_TIMEOUT_S
        )

    def _open_subscriber(self, name: str) -> None:
        if name in self._down:
            self._toggle(name)
        self._subscribers[name] = Subscriber(
            self._models[name], socket=self.group.socket(name), timeout=OPEN_TIMEOUT_S, patience=OPEN_TIMEOUT_S
        )


def _name(version: Version | None) -> tuple[str, int, str] | None:
    return None if version is None else (version.lineage, version.seq, version.digest)


def _copy(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def play(folder: Path, seed: int, versions: int, *, processes: bool = False) -> Schedule:
    """Runs one schedule; raises where a member is not level at its end."""
    kind = Group if processes else InsideGroup
    with kind(folder, MEMBERS, ringBytes=1 << 22) as group:
        schedule = Schedule(group, seed)
        schedule.run(versions)
    return schedule


def main(words: Sequence[str]) -> int:
    """Many schedules, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="of the first schedule; the others count up")
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--versions", type=int, default=200)
    parser.add_argument("--processes", action="store_true", help="sidecars as processes, ended by kill -9")
    parser.add_argument("--log", action="store_true", help="what sidecars say")
    given = parser.parse_args(words)
    if given.log:
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(threadName)s %(message)s")
    for seed in range(given.seed, given.seed + given.count):
        began_s = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="schedule-") as folder:
            schedule = play(Path(folder), seed, given.versions, processes=given.processes)
        sys.stdout.write(
            f"schedule {seed}: {schedule.published} versions, {len(schedule.done)} events, "
            f"{time.monotonic() - began_s:.1f} s, all members level\n"
        )
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
