"""Tensor parallelism: real processes, SGLang's own parallel state on gloo, every rank its part."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("sglang", reason="runs in SGLang's own environment: make test-engines")

from tests.support.engine_ranks import PATIENCE_S, check_every_rank

pytestmark = pytest.mark.timeout(PATIENCE_S + 60)


CASES = {
    "biases and a tied head": ("qwen2-tied", 2, []),
    "fewer heads of keys than ranks": ("llama", 4, []),
    "parts of every expert": ("qwen3-moe", 2, []),
    "whole experts": ("qwen3-moe", 2, ["whole-experts"]),
}


@pytest.mark.parametrize(("kind", "ranks", "more"), CASES.values(), ids=CASES)
def test_every_rank_gets_its_part_bit_for_bit(kind: str, ranks: int, more: list[str], tmp_path: Path) -> None:
    check_every_rank("sglang", kind, ranks, more, tmp_path)
