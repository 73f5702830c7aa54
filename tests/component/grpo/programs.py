"""Processes of the GRPO example beside real sidecars, and what they say."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from examples.grpo.settings import Settings, as_arguments
from tests.support.children import REPOSITORY
from tests.support.groups import Group


class Program:
    """One process; its output goes into a file."""

    def __init__(self, module: str, arguments: Sequence[str], log: Path) -> None:
        self.log = log
        with log.open("ab") as sink:
            self.process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments], cwd=REPOSITORY, stdout=sink, stderr=subprocess.STDOUT
            )

    def told(self) -> list[dict[str, Any]]:
        """The lines of JSON so far; the last one may be half there."""
        lines = self.log.read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]

    def kill(self) -> None:
        """kill -9."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(30)

    def finish(self, timeout_s: float) -> dict[str, Any]:
        """Its last line, after a good end."""
        code = self.process.wait(timeout_s)
        assert code == 0, self.log.read_text()[-4000:]
        return self.told()[-1]


class Programs:
    """The programs of one run."""

    def __init__(self, group: Group, settings: Settings, *, deterministic: bool) -> None:
        self._group = group
        self._common = [*as_arguments(settings), *(["--deterministic"] if deterministic else [])]
        self._started: list[Program] = []

    def worker(self, name: str, dies_in_task: int | None = None, rest_s: float | None = None) -> Program:
        """A worker beside the sidecar of that member."""
        words = ["--socket", self._group.socket(name), *self._common]
        words += [] if rest_s is None else ["--rest-s", str(rest_s)]
        if dies_in_task is None:
            return self._start("examples.grpo.worker", words, name)
        return self._start("tests.support.grpo_mortal_worker", [str(dies_in_task), *words], name)

    def trainer(self) -> Program:
        """The trainer; a later one goes on from its checkpoint."""
        words = ["--socket", self._group.socket("trainer-0"), "--out", str(self._group.folder / "run")]
        words += ["--control", f"127.0.0.1:{self._group.controls['trainer-0']}"]
        return self._start("examples.grpo.trainer", [*words, *self._common], "trainer-0")

    def _start(self, module: str, words: Sequence[str], name: str) -> Program:
        made = Program(module, words, self._group.folder / f"{name}-{len(self._started)}.out")
        self._started.append(made)
        return made

    def end(self) -> None:
        """Nothing is left running."""
        for program in self._started:
            if program.process.poll() is None:
                program.kill()


@contextmanager
def programs(group: Group, settings: Settings, *, deterministic: bool = True) -> Iterator[Programs]:
    """Programs that end with the block."""
    made = Programs(group, settings, deterministic=deterministic)
    try:
        yield made
    finally:
        made.end()
