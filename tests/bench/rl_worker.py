"""A rollout worker that replays recorded speeds: real tasks, real weights, sleep instead of sampling.

    python -m tests.bench.rl_worker JSON

Switches versions between tasks, as an engine would; what the switch costs on this machine's CPU counts against us. It
ends when its standard input does, or when it is killed.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any

import torch

from sync_runtime import Subscriber, Worker
from sync_runtime.errors import WorkRefusedError
from sync_runtime.library.worker import Task
from tests.bench.links_agents import say
from tests.bench.rl_weights import stand_in

_OPEN_S = 120.0
_LOOK_S = 1.0


def run(config: dict[str, Any], stop: threading.Event) -> None:
    """Task after task, until it is told to stop."""
    socket = config["socket"]
    with (
        Subscriber(stand_in(config["size_bytes"]), socket=socket, timeout=_OPEN_S) as subscriber,
        Worker(subscriber, socket=socket, timeout=_OPEN_S) as worker,
    ):
        say(member=config["member"], ready=True)
        while not stop.is_set():
            task = worker.take(_LOOK_S, activate=True)
            if task is not None:
                sample(task, config["tokens_per_s"])


def sample(task: Task, tokens_per_s: float) -> None:
    """As long as it took; a result that does not count any more is somebody else's."""
    tokens = int(task.payload)
    time.sleep(tokens / tokens_per_s)
    try:
        task.complete(b"", tokens=tokens)
    except WorkRefusedError as error:
        say(refused=str(error))


def main() -> None:
    """In a region."""
    torch.set_num_threads(1)
    stop = threading.Event()

    def watch_input() -> None:
        sys.stdin.read()
        stop.set()

    threading.Thread(target=watch_input, daemon=True).start()
    run(json.loads(sys.argv[1]), stop)


if __name__ == "__main__":
    main()
