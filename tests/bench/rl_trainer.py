"""A trainer that replays recorded times over real work leases and a real publisher.

    python -m tests.bench.rl_trainer JSON

Waits for a line on standard input, so that all workers are there when the clock starts. Says, as JSON lines, when each
step had its groups, what each worker had done by then, and how old the weights were that it was done with.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch

from sync_runtime import PromptGroup, Publisher, Work
from tests.bench.links_agents import say
from tests.bench.rl_weights import change, size_of, stand_in

_OPEN_S = 120.0
_PATIENCE_S = 600.0


def groups(step: int, count: int, tokens: int) -> list[PromptGroup]:
    """The prompt groups of a step; what they hold is how much there is to do."""
    return [PromptGroup(f"{step}-{number}", str(tokens).encode()) for number in range(count)]


def run(config: dict[str, Any], wait_for_go: Callable[[], object]) -> None:
    """All steps, after something true came back."""
    weights = stand_in(config["size_bytes"])
    socket = config["socket"]
    with (
        Publisher(weights, socket=socket, timeout=_OPEN_S, patience=_PATIENCE_S) as publisher,
        Work(socket=socket, timeout=_OPEN_S) as work,
    ):
        say(ready=True, size_bytes=size_of(weights))
        if not wait_for_go():
            return
        per_step, tokens = config["groups_per_step"], config["group_tokens"]
        for step in range(config["ahead_steps"]):
            work.submit(groups(step, per_step, tokens))
        results = work.results(timeout=_PATIENCE_S)
        newest = publisher.version.seq if publisher.version else 0
        done: Counter[str] = Counter()
        for step in range(config["total_steps"]):
            lags = []
            for _ in range(per_step):
                result = next(results)
                done[result.worker] += result.tokens
                lags.append(newest - result.version.seq if result.version else 0)
            say(started=step, at_s=time.monotonic(), tokens=dict(done), lags=lags)
            work.submit(groups(step + config["ahead_steps"], per_step, tokens))
            newest = _train(config, publisher, weights, step)
        say(ended=True)


def _train(config: dict[str, Any], publisher: Publisher, weights: dict[str, torch.Tensor], step: int) -> int:
    """The recorded time, of which making the stand-in's new bits is a part; then a version."""
    ends_s = time.monotonic() + config["train_s"]
    change(weights, step + 1)
    time.sleep(max(0.0, ends_s - time.monotonic()))
    began_s = time.monotonic()
    version = publisher.publish(step=step)
    say(published=version.seq, at_s=time.monotonic(), took_s=time.monotonic() - began_s)
    return version.seq


if __name__ == "__main__":
    torch.set_num_threads(1)
    run(json.loads(sys.argv[1]), sys.stdin.readline)
