"""The loop over steps: ask, take, judge, learn, publish, save. The same for one process and for many.

A checkpoint holds masters, optimiser, step and what was asked for and not taken, so that a trainer that starts again
loses no prompt and counts none twice. Knows not where rollouts come from.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from sync_runtime.library.engines.transformers import engine_copy

from .learner import Judged, Learner
from .model import WIRE, Policy
from .rollout import Request
from .settings import Settings
from .sources import Delivered, Source
from .task import problems_of, reward_of


@dataclass(frozen=True)
class Figures:
    """One step, for whoever plots it."""

    step: int
    reward: float
    loss: float
    grad_norm: float
    groups_used: int
    lag: float
    """Steps between the weights that answered and the weights that learn, on average."""
    tokens: int
    seconds: float
    learn_seconds: float
    sent_bytes: int | None
    workers: int

    def to_line(self) -> str:
        """One line of JSON."""
        return json.dumps(dataclasses.asdict(self))


def requests_of(settings: Settings, policy: Policy, step: int) -> list[Request]:
    """The prompt groups of one step."""
    text = policy.text
    return [
        Request(
            settings.seed, step, number, settings.samples, tuple(text.encode(text.question(problem.a, problem.b))),
            settings.max_new_tokens, settings.temperature, text.end, text.pad,
        )
        for number, problem in enumerate(problems_of(settings, step))
    ]  # fmt: skip


class Training:
    """One run. `step` is how many steps it has learned from."""

    def __init__(self, policy: Policy, settings: Settings, source: Source, checkpoint: Path | None = None) -> None:
        self._policy, self._settings, self._source, self._checkpoint = policy, settings, source, checkpoint
        self._learner = Learner(policy.model, settings)
        self.step = 0
        self._asked = 0
        """Steps whose prompts were handed out."""

    def run(
        self,
        tell: Callable[[Figures], None],
        *,
        until: int | None = None,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        """All steps that are left, or those up to `until`; fewer where `stop` says so after a step."""
        for _ in range(self.step, self._settings.steps if until is None else until):
            tell(self._one_step())
            self._save()
            if stop():
                return

    def _one_step(self) -> Figures:
        began, sent = time.monotonic(), self._source.sent_bytes()
        self._ask()
        delivered = self._source.take(self._settings.groups)
        judged = [self._judge(one) for one in delivered]
        learning = time.monotonic()
        learned = self._learner.learn(judged)
        learned_s = time.monotonic() - learning
        lags = [self.step - one.policy_step for one in delivered]
        self.step += 1
        self._source.publish(self.step)
        return Figures(
            self.step, learned.reward, learned.loss, learned.grad_norm, learned.groups_used, sum(lags) / len(lags),
            sum(one.rollout.tokens for one in delivered), time.monotonic() - began, learned_s,
            None if sent is None else max(0, (self._source.sent_bytes() or 0) - sent),
            len({one.worker for one in delivered}),
        )  # fmt: skip

    def _ask(self) -> None:
        """Prompts of this step, and of as many ahead as the settings say."""
        while self._asked <= min(self.step + self._settings.ahead, self._settings.steps - 1):
            self._source.submit(requests_of(self._settings, self._policy, self._asked))
            self._asked += 1

    def _judge(self, one: Delivered) -> Judged:
        problem = problems_of(self._settings, one.request.step)[one.request.group]
        rewards = (reward_of(problem, self._policy.text, sample.tokens) for sample in one.rollout.samples)
        return Judged(one.request, one.rollout, tuple(rewards))

    # --- the checkpoint ----------------------------------------------------------------------------------------------

    def _save(self) -> None:
        if self._checkpoint is None:
            return
        state = {
            "model": self._policy.model.state_dict(),
            "optimizer": self._learner.optimizer.state_dict(),
            "settings": json.dumps(dataclasses.asdict(self._settings)),
            "step": self.step,
            "asked": self._asked,
            "source": json.dumps(self._source.state_dict()),
        }
        staged = self._checkpoint.with_suffix(".new")
        torch.save(state, staged)
        staged.replace(self._checkpoint)  # whole or not at all

    def load_source(self, state: dict[str, Any]) -> None:
        """What was asked for and not taken."""
        self._source.load_state_dict(json.loads(state["source"]))

    def load_learner(self, state: dict[str, Any]) -> None:
        """Optimiser and counters; `load_masters` comes first."""
        self._learner.optimizer.load_state_dict(state["optimizer"])
        self.step, self._asked = state["step"], state["asked"]


def read_checkpoint(path: Path) -> dict[str, Any] | None:
    """A checkpoint of ours; None where there is none yet."""
    return torch.load(path, weights_only=True) if path.exists() else None


def load_masters(policy: Policy, state: dict[str, Any]) -> None:
    """The masters, before anybody opens a Publisher on them."""
    policy.model.load_state_dict(state["model"])


def sum_of(tensors: Sequence[tuple[str, torch.Tensor]]) -> str:
    """SHA-256 over all bits: equality that rests on nobody's digest."""
    whole = hashlib.sha256()
    for name, tensor in sorted(tensors):
        whole.update(name.encode())
        whole.update(tensor.detach().contiguous().reshape(-1).view(torch.uint8).cpu().numpy().tobytes())
    return whole.hexdigest()


def masters_sum(policy: Policy) -> str:
    """Of the fp32 masters."""
    return sum_of(list(policy.model.state_dict().items()))


def wire_sum(policy: Policy) -> str:
    """Of the masters as workers run them: what `sum_of` a worker's engine must be."""
    return sum_of(list(engine_copy(policy.model, WIRE).state_dict().items()))
