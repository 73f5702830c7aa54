"""SyncGroup in the table of the field: sidecars, a trainer, a worker per region over the shared uplink, in real time.

Everything but the model and the sampling is the real thing: certificates, TLS, tuned links, verified weights, work
leases. A worker may be killed again and again on the way.
"""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from syncgroup.cli import main as syncgroup
from tests.bench.links_lab import ROOT
from tests.bench.rl_lab import TRAINER_REGION, Account, Wan, account_of, close_pipes
from tests.bench.rl_loop import Outcome
from tests.bench.rl_replay import AHEAD_STEPS, MAX_STALENESS, Replay

TRAINER = "trainer-0"
_PORT = 7443
_START_S = 180.0
_END_S = 20.0
_NOTE_CHARACTERS = 1500
_SLACK = 20
"""Times the ideal: a run that takes longer has failed."""


class RunError(RuntimeError):
    """A run of the loop did not come to its end."""


@dataclass(frozen=True)
class Run:
    """What came of it."""

    outcome: Outcome
    account: Account
    publish_s: list[float]
    versions: int
    kills: int


@dataclass
class Programs:
    """The processes of one run, and everything they said."""

    wan: Wan
    folder: Path
    processes: dict[str, subprocess.Popen[str]] = field(default_factory=dict)
    said: queue.SimpleQueue[dict[str, Any]] = field(default_factory=queue.SimpleQueue)
    notes: dict[str, str] = field(default_factory=dict)
    """The end of what each wrote besides."""
    _listeners: dict[str, threading.Thread] = field(default_factory=dict)

    def start(self, name: str, region: str, module: str, *words: str) -> None:
        """A Python program in a region; its JSON lines are kept, and the end of its other output."""
        process = self.wan.lab.popen(
            region,
            [sys.executable, "-m", module, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=ROOT,
        )
        self.processes[name] = process
        self._listeners[name] = threading.Thread(target=self._listen, args=(name, process), daemon=True)
        self._listeners[name].start()

    def _listen(self, name: str, process: subprocess.Popen[str]) -> None:
        for line in process.stdout or ():
            if line.startswith("{"):
                self.said.put({"from": name} | json.loads(line))
                continue
            self.notes[name] = (self.notes.get(name, "") + line)[-_NOTE_CHARACTERS:]
            if "control http://" in line:
                self.said.put({"from": name, "listens": True})
        self.said.put({"from": name, "gone": True})

    def wait(self, names: set[str], key: str, timeout_s: float = _START_S) -> None:
        """Until each of them has said it."""
        missing, deadline_s = set(names), time.monotonic() + timeout_s
        while missing:
            try:
                line = self.said.get(timeout=max(0.0, deadline_s - time.monotonic()))
            except queue.Empty as error:
                raise RunError(
                    f"{', '.join(sorted(missing))} did not get so far: {self.last_words(missing)}"
                ) from error
            if "gone" in line and line["from"] in missing:
                raise RunError(f"{line['from']} ended early: {self.last_words({line['from']})}")
            if key in line:
                missing.discard(line["from"])

    def socket(self, member: str) -> str:
        """Where a member's programs find its sidecar."""
        return str(self.folder / "state" / member / "sidecar.sock")

    def kill(self, name: str) -> None:
        """kill -9."""
        process = self.processes.pop(name)
        process.kill()
        process.wait()
        # What was started only wraps the program: the program has ended when nobody holds its output open any more.
        self._listeners.pop(name).join(_END_S)
        close_pipes(process)

    def close(self) -> None:
        """End everything."""
        for name in list(self.processes):
            self.kill(name)

    def last_words(self, names: set[str]) -> str:
        """For a person who must find out why."""
        return " | ".join(self.notes.get(name, "it said nothing") for name in sorted(names))


def member_of(region: str) -> str:
    """The one member of a region."""
    return f"rollout-{region}"


def group_file(address: str, regions: Sequence[str]) -> str:
    """`group.toml` of a trainer and one member per region."""
    lines = ['group = "bench"', f"maxStaleness = {MAX_STALENESS}", ""]
    lines += ["[[members]]", f'name = "{TRAINER}"', 'role = "Trainer"', f'region = "{TRAINER_REGION}"']
    lines += [f'listen = "{address}:{_PORT}"']
    for region in regions:
        lines += [
            "",
            "[[members]]",
            f'name = "{member_of(region)}"',
            f'region = "{region}"',
            f'parents = ["{TRAINER}"]',
        ]
    return "\n".join(lines) + "\n"


@contextmanager
def _sidecars(wan: Wan) -> Iterator[Programs]:
    with tempfile.TemporaryDirectory(prefix="bench-rl-") as name:
        folder = Path(name)
        (folder / "group.toml").write_text(group_file(wan.lab.address(TRAINER_REGION), wan.rollout_regions))
        words = ["certs", "init", str(folder / "certs"), "--group", "bench", "--trainer", f"{TRAINER}@{TRAINER_REGION}"]
        for region in wan.rollout_regions:
            words += ["--member", f"{member_of(region)}@{region}"]
        with redirect_stdout(sys.stderr):  # standard output is for figures
            status = syncgroup(words)
        if status:
            raise RunError("the group's certificates could not be made")
        programs = Programs(wan, folder)
        try:
            places = {TRAINER: TRAINER_REGION} | {member_of(region): region for region in wan.rollout_regions}
            for member, region in places.items():
                config = str(folder / "group.toml")
                programs.start(
                    f"sidecar-{member}", region, "syncgroup.cli", "sidecar", "--config", config, "--member", member
                )
            programs.wait({f"sidecar-{member}" for member in places}, "listens")
            yield programs
        finally:
            programs.close()


def run_loop(
    wan: Wan, replay: Replay, size_bytes: int, speeds: Sequence[float], kill_every_s: float | None = None
) -> Run:
    """All steps; `kill_every_s`: the worker of the first region is killed so often, and started again at once."""
    members = [member_of(region) for region in wan.rollout_regions]
    with _sidecars(wan) as programs:
        trainer = _start_trainer(programs, replay, size_bytes)
        workers = [
            _Worker(programs, member, region, size_bytes, speed)
            for member, region, speed in zip(members, wan.rollout_regions, speeds, strict=True)
        ]
        for worker in workers:
            worker.start()
        programs.wait(set(members), "ready")
        wan.lab.emulator.reset()
        trainer.write("\n")
        trainer.flush()
        return _follow(programs, replay, members, _Victim(workers[0], kill_every_s))


def _start_trainer(programs: Programs, replay: Replay, size_bytes: int) -> IO[str]:
    """Its standard input, on which it waits for a line."""
    config = {
        "size_bytes": size_bytes,
        "socket": programs.socket(TRAINER),
        "groups_per_step": replay.groups_per_step,
        "group_tokens": replay.group_tokens,
        "ahead_steps": AHEAD_STEPS,
        "total_steps": replay.total_steps,
        "train_s": replay.train_s,
    }
    programs.start("trainer", TRAINER_REGION, "tests.bench.rl_trainer", json.dumps(config))
    programs.wait({"trainer"}, "ready")
    stdin = programs.processes["trainer"].stdin
    if stdin is None:
        raise RunError("the trainer was started without a pipe")
    return stdin


@dataclass(frozen=True)
class _Worker:
    """A worker that can be started again."""

    programs: Programs
    member: str
    region: str
    size_bytes: int
    tokens_per_s: float

    def start(self) -> None:
        config = {
            "member": self.member,
            "size_bytes": self.size_bytes,
            "tokens_per_s": self.tokens_per_s,
            "socket": self.programs.socket(self.member),
        }
        self.programs.start(self.member, self.region, "tests.bench.rl_worker", json.dumps(config))


@dataclass
class _Victim:
    """A worker that is killed every so often, or never."""

    worker: _Worker
    every_s: float | None
    kills: int = 0

    def __post_init__(self) -> None:
        self._next_s = time.monotonic() + (self.every_s or 0.0)

    def wait_s(self) -> float:
        """How long to look at other things."""
        return min(1.0, max(0.0, self._next_s - time.monotonic())) if self.every_s else 1.0

    def may_end(self, name: str) -> bool:
        """Whether it is this one's end that is no surprise."""
        return self.every_s is not None and name == self.worker.member

    def kill_if_due(self) -> None:
        if self.every_s and time.monotonic() >= self._next_s:
            self.worker.programs.kill(self.worker.member)
            self.worker.start()
            self._next_s += self.every_s
            self.kills += 1


def _follow(programs: Programs, replay: Replay, members: Sequence[str], victim: _Victim) -> Run:
    """What the trainer says, until it has ended."""
    outcome, publish_s, versions = Outcome(), list[float](), 0
    deadline_s = time.monotonic() + 60 + _SLACK * replay.step_s * replay.total_steps
    while True:
        victim.kill_if_due()
        if time.monotonic() > deadline_s:
            raise RunError(f"only {len(outcome.started_s)} of {replay.total_steps} steps came")
        try:
            line = programs.said.get(timeout=victim.wait_s())
        except queue.Empty:
            continue
        if "started" in line:
            outcome.started_s.append(line["at_s"])
            outcome.tokens.append([line["tokens"].get(member, 0) for member in members])
            outcome.lags += line["lags"]
            if len(outcome.started_s) == replay.total_steps:
                return Run(outcome, account_of(programs.wan), publish_s, versions, victim.kills)
        elif "published" in line:
            publish_s.append(line["took_s"])
            versions += 1
        elif "gone" in line and not victim.may_end(line["from"]):
            raise RunError(f"{line['from']} ended early: {programs.last_words({line['from']})}")
