"""Runs an engine's `rank_program` in several processes, and compares what its ranks say of themselves."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.support.children import REPOSITORY
from tests.support.engine_models import save, trainer_model

PATIENCE_S = 540
CASES: dict[str, tuple[str, int, list[str]]] = {
    "biases and a tied head": ("qwen2-tied", 2, []),
    "fewer heads of keys than ranks": ("llama", 4, []),
    "parts of every expert": ("qwen3-moe", 2, []),
    "whole experts": ("qwen3-moe", 2, ["whole-experts"]),
}
"""The kind of model, how many ranks, and what else the program is told."""
_TOLD = re.compile(r"wrong=(.*) cut=(\d+) blocks=(\d+) counted=(.*)")


def check_every_rank(engine: str, kind: str, ranks: int, more: list[str], folder: Path) -> None:
    """Every rank's memory is what the engine would have loaded, and all blocks are counted once between them."""
    folders = [str(save(trainer_model(kind, seed), folder / str(seed))) for seed in (0, 1)]
    program = ["-m", f"tests.engines.{engine}.rank_program"]
    logs = [folder / f"rank{rank}.log" for rank in range(ranks)]
    processes = []
    for rank, log in enumerate(logs):
        command = [sys.executable, *program, str(rank), str(ranks), f"file://{folder}/store", *folders, *more]
        with log.open("w") as errors:  # a pipe that nobody reads while others are waited for would fill up
            processes.append(
                subprocess.Popen(
                    command, cwd=REPOSITORY, env=dict(os.environ), stdout=subprocess.PIPE, stderr=errors, text=True
                )
            )
    told = []
    try:
        for process, log in zip(processes, logs, strict=True):
            out, _ = process.communicate(timeout=PATIENCE_S)
            assert process.returncode == 0, log.read_text()[-3000:]
            told.append(out.splitlines()[-1])
    finally:
        for process in processes:
            process.kill()
    found = [_TOLD.fullmatch(line) for line in told]
    assert all(one is not None and one[1] == "[]" and int(one[2]) > 0 for one in found), told
    counted = sorted(int(number) for one in found if one for number in one[4].split(",") if number)
    assert found[0] is not None
    assert counted == list(range(int(found[0][3])))
