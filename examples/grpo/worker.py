"""A rollout worker's program: takes tasks, answers them under the version that the lease names, switches in between.

python -m examples.grpo.worker
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sync_runtime import Generation, Subscriber, Worker
from sync_runtime.errors import WorkRefusedError
from sync_runtime.library.engines.transformers import engine_copy
from sync_runtime.library.version import Version
from sync_runtime.library.worker import Task

from . import settings as run_settings
from .model import WIRE, load, make_deterministic
from .output import tell_wait
from .rollout import Request, roll_out
from .training import sum_of

OPEN_S = 300.0


def main(arguments: list[str] | None = None) -> int:
    """Until it is ended, or nothing came for `--idle-s`."""
    parser = argparse.ArgumentParser(prog="grpo.worker", description="GRPO over SyncGroup: a rollout worker.")
    parser.add_argument("--gguf", type=Path, help="file of SmolLM2, where it is not in the cache")
    parser.add_argument("--socket", help="the sidecar's; in a pod it is known")
    parser.add_argument("--deterministic", action="store_true", help="one thread, kernels that repeat")
    parser.add_argument("--idle-s", type=float, help="end when no task came for so long")
    parser.add_argument("--rest-s", type=float, help="say the sum of the weights when no task came for so long")
    run_settings.add_arguments(parser)
    found = parser.parse_args(arguments)
    if found.deterministic:
        make_deterministic()
    engine = engine_copy(load(run_settings.from_arguments(found), found.gguf).model, WIRE)
    tell_wait(found.socket, OPEN_S)
    with Subscriber(engine, engine="transformers", socket=found.socket, timeout=OPEN_S, patience=OPEN_S) as subscriber:
        serve(engine, subscriber, found.socket, found.idle_s, found.rest_s)
    return 0


def serve(
    engine: Any, subscriber: Subscriber, socket: str | None, idle_s: float | None, rest_s: float | None = None
) -> None:
    """Answers task after task. Weights change only between two of them."""
    generation = Generation(engine, subscriber, switch="asked")
    worker = Worker(subscriber, socket=socket)

    def generate(*inputs: Any, **options: Any) -> Any:
        return generation.generate(*inputs, **options).output

    for task in _tasks(worker, engine, subscriber, idle_s, rest_s):
        began = time.monotonic()
        rollout = roll_out(generate, Request.from_bytes(task.payload))
        spent_s = time.monotonic() - began
        try:
            task.complete(rollout.to_bytes(), tokens=rollout.tokens)
        except WorkRefusedError as error:  # the lease ran out, or the trainer went back: somebody else has it now
            _say(task=task.id, refused=str(error))
            continue
        subscriber.note(tokens_per_second=round(rollout.tokens / max(spent_s, 1e-6)))
        _say(task=task.id, seq=task.version.seq, tokens=rollout.tokens)
    worker.close()


def _tasks(
    worker: Worker, engine: Any, subscriber: Subscriber, idle_s: float | None, rest_s: float | None
) -> Iterator[Task]:
    """Tasks until none came for `idle_s`. After `rest_s` without one the live weights are told, once per version."""
    told: Version | None = None
    while True:
        idle_from = time.monotonic()
        while (task := worker.take(idle_s if rest_s is None else rest_s, activate=True)) is None:
            version = subscriber.version
            if version is not None and version != told and rest_s is not None:
                _say(seq=version.seq, digest=version.digest, sum=sum_of(list(engine.state_dict().items())))
                told = version
            if rest_s is None or (idle_s is not None and time.monotonic() - idle_from >= idle_s):
                return
        yield task


def _say(**facts: object) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
