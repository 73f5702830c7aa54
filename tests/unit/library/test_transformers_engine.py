"""The engine for Hugging Face models: names of the checkpoint, ties, and what cannot travel."""

import pytest
import torch

from sync_runtime.errors import LayoutError
from sync_runtime.library import engines
from sync_runtime.library.engines.transformers import engine_copy
from sync_runtime.library.weights import Weights
from tests.support.language_models import tiny_llama

pytestmark = pytest.mark.timeout(60)  # the first import of transformers


def test_of_tied_weights_the_one_in_the_checkpoint_travels() -> None:
    engine = engines.attach("transformers", tiny_llama())
    assert "lm_head.weight" not in engine.tensors()
    assert engine.ties() == {"lm_head.weight": "model.embed_tokens.weight"}
    assert "lm_head.weight" in engines.attach("transformers", tiny_llama(tied=False)).tensors()


def test_buffers_that_no_checkpoint_holds_stay_at_home() -> None:
    model = tiny_llama()
    model.model.register_buffer("kept", torch.ones(3))
    names = engines.attach("transformers", model).tensors().keys()
    assert "model.kept" in names
    assert not any("inv_freq" in name for name in names)


def test_wrappers_are_looked_through() -> None:
    model = tiny_llama()
    plain = engines.attach("transformers", model)
    for wrapped in (torch.nn.DataParallel(model), torch.compile(model)):
        engine = engines.attach("transformers", wrapped)
        assert engine.tensors().keys() == plain.tensors().keys()
        assert engine.ties() == plain.ties()


def test_a_copy_for_engines_is_what_a_publisher_sends() -> None:
    masters = tiny_llama()
    copied = engine_copy(masters, torch.bfloat16)
    sent = Weights(engines.attach("transformers", masters), torch.bfloat16)
    received = Weights(engines.attach("transformers", copied))
    assert received.layout.document == sent.layout.document
    for name, tensor in received.tensors().items():
        assert torch.equal(tensor, sent.tensors()[name].to(torch.bfloat16))
    assert copied.model.rotary_emb.inv_freq.dtype == torch.float32
    assert masters.model.embed_tokens.weight.dtype == torch.float32
    assert not copied.training
    assert masters.training


def test_ties_that_came_apart_are_found() -> None:
    model = tiny_llama()
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
    with pytest.raises(LayoutError, match="tie_weights"):
        engines.attach("transformers", model).tensors()


def test_frequencies_that_were_cast_with_the_model_are_refused() -> None:
    with pytest.raises(LayoutError, match=r"inv_freq.*engine_copy"):
        engines.attach("transformers", tiny_llama().to(torch.bfloat16))


def test_adapters_and_quantised_models_are_refused() -> None:
    model = tiny_llama()
    model.hf_quantizer = object()
    with pytest.raises(LayoutError, match="quantised"):
        engines.attach("transformers", model)
    model = tiny_llama()
    model.peft_config = {}
    with pytest.raises(LayoutError, match="adapters"):
        engines.attach("transformers", model)


def test_other_things_are_refused_with_the_engine_that_takes_them() -> None:
    with pytest.raises(LayoutError, match="'module'"):
        engines.attach("transformers", torch.nn.Linear(2, 2))
