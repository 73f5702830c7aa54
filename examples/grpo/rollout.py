"""Samples of one prompt group, and how the request and the answer travel as bytes.

Every sample draws from a stream of its own, seeded by (seed, step, group, sample), and a group is one batch wherever it
is made: its tokens depend on the prompt and the weights, not on who makes them, when, or beside what. Answers carry the
probabilities that their tokens had when they were drawn, bit for bit.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

MAX_TOKENS = 4096
"""The longest prompt and the longest answer that is taken from elsewhere."""

Generate = Callable[..., Any]
"""A model's `generate`, or one that runs it under a version."""


class PayloadError(Exception):
    """Bytes that are no request, or no answer to it."""


@dataclass(frozen=True)
class Request:
    """What a worker needs to know of a prompt group."""

    seed: int
    step: int
    group: int
    samples: int
    prompt: tuple[int, ...]
    max_new_tokens: int
    temperature: float
    end: int
    pad: int

    @property
    def id(self) -> str:
        """Its name in the ledger of work."""
        return f"{self.step}-{self.group}"

    def to_bytes(self) -> bytes:
        """JSON."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Request:
        """Raises PayloadError."""
        try:
            found = json.loads(data)
            return cls(**{**found, "prompt": tuple(found["prompt"])})
        except (ValueError, TypeError, KeyError) as error:
            raise PayloadError(f"a request cannot be read: {error}") from error


@dataclass(frozen=True)
class Sample:
    """One answer: its tokens, the end included, and the logarithms of their probabilities."""

    tokens: tuple[int, ...]
    log_probs: tuple[float, ...]


@dataclass(frozen=True)
class Rollout:
    """The answers of one group."""

    samples: tuple[Sample, ...]

    @property
    def tokens(self) -> int:
        """Of all answers."""
        return sum(len(sample.tokens) for sample in self.samples)

    def to_bytes(self) -> bytes:
        """JSON; probabilities as the bytes of fp32, so that no bit is lost."""
        rows = [
            {
                "tokens": list(sample.tokens),
                "logProbs": base64.b64encode(np.asarray(sample.log_probs, "<f4").tobytes()).decode(),
            }
            for sample in self.samples
        ]
        return json.dumps({"samples": rows}).encode()

    @classmethod
    def from_bytes(cls, data: bytes, request: Request, vocabulary: int) -> Rollout:
        """Raises PayloadError for anything that cannot be an answer to the request."""
        try:
            rows = json.loads(data)["samples"]
            samples = tuple(_sample(row["tokens"], row["logProbs"]) for row in rows)
        except (ValueError, TypeError, KeyError) as error:
            raise PayloadError(f"the answer to group {request.id} cannot be read: {error}") from error
        limit = min(request.max_new_tokens, MAX_TOKENS)
        if len(samples) != request.samples or not all(_fits(one, limit, vocabulary) for one in samples):
            raise PayloadError(f"the answer to group {request.id} does not fit what was asked")
        return cls(samples)


def _sample(tokens: Sequence[int], log_probs: str) -> Sample:
    found = np.frombuffer(base64.b64decode(log_probs, validate=True), "<f4")
    return Sample(tuple(int(token) for token in tokens), tuple(found.tolist()))


def _fits(sample: Sample, limit: int, vocabulary: int) -> bool:
    return (
        0 < len(sample.tokens) <= limit
        and len(sample.tokens) == len(sample.log_probs)
        and all(0 <= token < vocabulary for token in sample.tokens)
        and all(np.isfinite(value) and value <= 0 for value in sample.log_probs)
    )


class SeededSampling:
    """Draws a token per row from the row's own stream, as a processor of logits for greedy generation.

    The largest of logits plus Gumbel noise is a draw from their distribution, so a stream per row is all it needs.
    """

    def __init__(self, request: Request) -> None:
        self._streams = [stream_of(request, number) for number in range(request.samples)]
        self._temperature = request.temperature
        self.log_probs: list[torch.Tensor] = []
        """Of the drawn tokens, one tensor per position."""

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Logits with noise; the largest is the draw."""
        scaled = scores.float() / self._temperature
        noise = torch.stack([torch.rand(scaled.shape[1], generator=stream) for stream in self._streams])
        noisy = scaled - torch.log(-torch.log(noise.clamp(min=1e-20))).to(scaled.device)
        drawn = noisy.argmax(dim=-1, keepdim=True)
        self.log_probs.append(scaled.log_softmax(dim=-1).gather(1, drawn)[:, 0])
        return noisy


def stream_of(request: Request, sample: int) -> torch.Generator:
    """The stream of one sample; no other sample of the run has it."""
    name = f"{request.seed}/{request.step}/{request.group}/{sample}"
    return torch.Generator().manual_seed(int.from_bytes(hashlib.sha256(name.encode()).digest()[:8]) >> 1)


def roll_out(generate: Generate, request: Request, device: torch.device | None = None) -> Rollout:
    """The answers to a request, by a function that takes what `generate` of a model takes and returns its sequences."""
    sampling = SeededSampling(request)
    prompt = torch.tensor([request.prompt] * request.samples, device=device)
    sequences = generate(
        prompt, attention_mask=torch.ones_like(prompt), do_sample=False, max_new_tokens=request.max_new_tokens,
        logits_processor=[sampling], eos_token_id=request.end, pad_token_id=request.pad,
    )  # fmt: skip
    new = sequences[:, prompt.shape[1] :]
    log_probs = torch.stack(sampling.log_probs, dim=1)
    return Rollout(tuple(_cut(row, probs, request.end) for row, probs in zip(new, log_probs, strict=True)))


def _cut(row: torch.Tensor, log_probs: torch.Tensor, end: int) -> Sample:
    """Without what follows the first end."""
    tokens = row.tolist()
    length = tokens.index(end) + 1 if end in tokens else len(tokens)
    return Sample(tuple(tokens[:length]), tuple(log_probs[:length].tolist()))
