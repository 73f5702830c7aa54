"""Tensor parallelism: real processes, vLLM's own parallel state on gloo, every rank its part."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("vllm", reason="runs in vLLM's own environment: make test-engines")

from tests.engines.vllm import real
from tests.support.children import REPOSITORY

pytestmark = pytest.mark.timeout(300)


CASES = {
    "biases and a tied head": ("qwen2-tied", 2, []),
    "fewer heads of keys than ranks": ("llama", 4, []),
    "parts of every expert": ("qwen3-moe", 2, []),
    "whole experts": ("qwen3-moe", 2, ["whole-experts"]),
}


@pytest.mark.parametrize(("kind", "ranks", "more"), CASES.values(), ids=CASES)
def test_every_rank_gets_its_part_bit_for_bit(kind: str, ranks: int, more: list[str], tmp_path: Path) -> None:
    folders = [str(real.save(real.trainer_model(kind, seed), tmp_path / str(seed))) for seed in (0, 1)]
    store = f"file://{tmp_path}/store"
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.engines.vllm.rank_program", str(rank), str(ranks), store, *folders, *more],
            cwd=REPOSITORY, env=dict(os.environ), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(ranks)
    ]  # fmt: skip
    told = []
    for process in processes:
        out, err = process.communicate(timeout=240)
        assert process.returncode == 0, err[-3000:]
        told.append(out.splitlines()[-1])
    found = [re.fullmatch(r"wrong=(.*) cut=(\d+) blocks=(\d+) counted=(.*)", line) for line in told]
    assert all(one is not None and one[1] == "[]" and int(one[2]) > 0 for one in found), told
    counted = sorted(int(number) for one in found if one for number in one[4].split(",") if number)
    assert found[0] is not None
    assert counted == list(range(int(found[0][3])))
