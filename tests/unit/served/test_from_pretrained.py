"""A reader that only knows `from_pretrained` loads each version from the served folder, with every bit of it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sync_runtime.offline import diff, layout_of
from sync_runtime.offline.served.folder import CURRENT, ServedFolder
from sync_runtime.tensors.bits import BitTensor
from tests.support.interop import read_state
from tests.support.states import copied, next_state

torch = pytest.importorskip("torch", reason="torch is not installed: models are made with it")
pytest.importorskip("transformers", reason="transformers is not installed: it is the reader here")


def bits_of(model: Any) -> dict[str, Any]:
    return {name: tensor.detach().view(torch.int16).numpy().copy() for name, tensor in model.state_dict().items()}


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.timeout(120)  # the first import of transformers
def test_each_version_is_loaded_as_it_was_published(tmp_path: Path, tied: bool) -> None:
    from transformers import AutoModelForCausalLM

    from tests.support.language_models import tiny_llama

    tiny_llama(tied=tied).to(torch.bfloat16).save_pretrained(tmp_path / "base")
    states: list[dict[str, BitTensor]] = [copied(read_state(tmp_path / "base"))]
    for seed in range(3):
        states.append(next_state(states[-1], seed, 30))
    layout = layout_of(states[0])
    folder = ServedFolder(tmp_path / "served", tmp_path / "base", layout, grace_s=0, threads=1)
    for number in range(1, 4):
        delta = diff(states[number - 1], states[number], layout=layout, seqs=(number - 1, number), threads=1)
        assert folder.advance(delta)
        model = AutoModelForCausalLM.from_pretrained((tmp_path / "served" / CURRENT).resolve(), dtype=torch.bfloat16)
        loaded = bits_of(model)
        for name, bits in states[number].items():
            assert np.array_equal(loaded[name].reshape(-1).view(np.uint16), bits.matrix.reshape(-1)), name
        del model
    folder.close()
