"""Tensor parallelism: real processes, vLLM's own parallel state on gloo, every rank its part."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("vllm", reason="runs in vLLM's own environment: make test-engines")

from tests.support.engine_ranks import CASES, PATIENCE_S, check_every_rank

pytestmark = pytest.mark.timeout(PATIENCE_S + 60)


@pytest.mark.parametrize(("kind", "ranks", "more"), CASES.values(), ids=CASES)
def test_every_rank_gets_its_part_bit_for_bit(kind: str, ranks: int, more: list[str], tmp_path: Path) -> None:
    check_every_rank("vllm", kind, ranks, more, tmp_path)
