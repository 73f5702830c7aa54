"""Ranks of one trainer as processes of their own, with real collectives over gloo; commands by line.

python -m tests.support.mesh_ranks

One process imports torch and forks the others. Each line of input is a command for all of them, as JSON; each line of
output the list of their answers.
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import dataclasses
import json
import os
import socket
import sys
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"

import numpy as np
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore
from torch.distributed.tensor.debug import CommDebugMode

from sync_runtime import Publisher
from sync_runtime.tensors import layout
from tests.support.mesh_models import WIRE, Net, spread, train, whole_state
from tests.support.sharded import SMALL_ELEMENTS

WORLD = 4
_TIMEOUT = timedelta(seconds=60)


def publish(command: dict[str, Any], rank: int) -> dict[str, Any]:
    """A trainer that publishes some versions; the first rank writes what torch says that they are."""
    ranks, folder = int(command["ranks"]), Path(command["folder"])
    mesh, do_spread = spread(command["way"], ranks)
    if rank >= ranks:
        return {}
    model = Net()
    do_spread(model)
    with CommDebugMode() as opening:
        publisher = Publisher(
            model, engine="dtensor", wire_dtype=WIRE, socket=command["socket"], rank=rank, world_size=ranks
        )
    collectives = opening.get_total_counts()
    versions = []
    for step in range(1, 1 + int(command["steps"])):
        train(model, step)
        with CommDebugMode() as comm:
            versions.append(dataclasses.asdict(publisher.publish(step=step)))
        collectives += comm.get_total_counts()
        with CommDebugMode() as seen:
            state = whole_state(model)
        if rank == 0:
            arrays: dict[str, Any] = {name: one.numpy() for name, one in _as_bits(state).items()}
            np.savez(folder / f"{step}.npz", **arrays)
    publisher.close(0.0)
    return {"versions": versions, "collectives": collectives, "seen": seen.get_total_counts(), "mesh": str(mesh)}


def _as_bits(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: one.view(torch.int16) if one.dtype == WIRE else one for name, one in state.items()}


def _answer(line: str, rank: int) -> dict[str, Any]:
    try:
        return publish(json.loads(line), rank)
    except Exception as error:  # noqa: BLE001 -- handed to the test
        return {"error": f"{type(error).__name__}: {error}"}


def _serve(rank: int, store: str, link: socket.socket) -> None:
    torch.set_num_threads(1)
    layout.SMALL_ELEMENTS = SMALL_ELEMENTS
    dist.init_process_group("gloo", store=FileStore(store, WORLD), rank=rank, world_size=WORLD, timeout=_TIMEOUT)
    with link.makefile("rw") as stream:
        for line in stream:
            stream.write(json.dumps(_answer(line, rank)) + "\n")
            stream.flush()
    os._exit(0)


def main() -> None:
    """Forks the ranks before any thread is there, and hands lines on."""
    streams = []
    with tempfile.TemporaryDirectory() as folder:
        for rank in range(WORLD):
            mine, theirs = socket.socketpair()
            if os.fork() == 0:
                mine.close()
                _serve(rank, f"{folder}/store", theirs)
            theirs.close()
            streams.append(mine.makefile("rw"))
        for line in sys.stdin:
            for stream in streams:
                stream.write(line)
                stream.flush()
            answers = [json.loads(stream.readline() or '{"error": "the process died"}') for stream in streams]
            sys.stdout.write(json.dumps(answers) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
