"""One step of GRPO: advantages relative to the group, clipped ratios, AdamW on fp32 masters. Plain torch.

Groups are taken in the order in which they are given and their gradients added in it, so that equal rollouts give equal
bits. Old probabilities are the workers', from bf16 weights: at the first update ratios are near 1, not exactly 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .rollout import Request, Rollout
from .settings import Settings

_EPSILON = 1e-4


@dataclass(frozen=True)
class Judged:
    """A group with what its answers are worth."""

    request: Request
    rollout: Rollout
    rewards: tuple[float, ...]


@dataclass(frozen=True)
class Learned:
    """What a step was like."""

    reward: float
    loss: float
    grad_norm: float
    groups_used: int
    """Groups whose answers were not all worth the same: only those teach anything."""


def advantages_of(rewards: Sequence[float]) -> torch.Tensor:
    """How much better than its group every answer is, in standard deviations; zeros where all are equal."""
    found = torch.tensor(rewards, dtype=torch.float32)
    centred = found - found.mean()
    return centred / (centred.square().mean().sqrt() + _EPSILON)


class Learner:
    """Masters in fp32 and their optimiser."""

    def __init__(self, model: Any, settings: Settings) -> None:
        self.model, self._settings = model, settings
        # `foreach` and fused kernels may add in another order from release to release; one tensor at a time does not.
        self.optimizer = torch.optim.AdamW(
            model.parameters(), lr=settings.learning_rate, betas=(0.9, 0.99), weight_decay=0.0, foreach=False
        )

    def learn(self, groups: Sequence[Judged]) -> Learned:
        """Some updates on a batch of groups."""
        used = [group for group in groups if max(group.rewards) != min(group.rewards)]
        tokens = sum(group.rollout.tokens for group in used)
        loss = grad_norm = 0.0
        for _ in range(self._settings.updates if used else 0):
            self.optimizer.zero_grad(set_to_none=True)
            loss = 0.0
            for group in used:
                part = self._loss(group) / tokens
                part.backward()  # type: ignore[no-untyped-call]
                loss += part.item()
            norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self._settings.max_grad_norm, foreach=False)
            grad_norm = norm.item()
            self.optimizer.step()
        rewards = [reward for group in groups for reward in group.rewards]
        return Learned(sum(rewards) / len(rewards), loss, grad_norm, len(used))

    def _loss(self, group: Judged) -> torch.Tensor:
        """The clipped objective of a group, summed over its tokens."""
        device = next(self.model.parameters()).device
        ids, mask, old = (part.to(device) for part in _rows(group))
        first = len(group.request.prompt)
        logits = self.model(ids[:, :-1]).logits[:, first - 1 :].float() / group.request.temperature
        every = logits.log_softmax(dim=-1)
        new = every.gather(2, ids[:, first:, None])[..., 0]
        entropy = -(every.exp() * every).sum(dim=-1)
        ratio = torch.exp(new - old)
        clipped = ratio.clamp(1 - self._settings.clip, 1 + self._settings.clip)
        advantages = advantages_of(group.rewards)[:, None].to(device)
        gain = torch.minimum(ratio * advantages, clipped * advantages) + self._settings.entropy * entropy
        loss: torch.Tensor = -(gain * mask).sum()
        return loss


def _rows(group: Judged) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Prompt and answer of every sample, padded on the right; which tokens count; their old probabilities."""
    samples, request = group.rollout.samples, group.request
    width = max(len(sample.tokens) for sample in samples)
    ids = torch.full((len(samples), len(request.prompt) + width), request.pad)
    mask, old = torch.zeros(len(samples), width), torch.zeros(len(samples), width)
    for number, sample in enumerate(samples):
        length = len(sample.tokens)
        ids[number, : len(request.prompt)] = torch.tensor(request.prompt)
        ids[number, len(request.prompt) : len(request.prompt) + length] = torch.tensor(sample.tokens)
        mask[number, :length] = 1.0
        old[number, :length] = torch.tensor(sample.log_probs)
    return ids, mask, old
