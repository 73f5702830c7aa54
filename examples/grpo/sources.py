"""Where a step's rollouts come from: this process, or workers that hold work leases. The loop sees no difference.

`InProcess` casts the masters as the wire does and generates group by group, as every worker does. `Leased` is the one
place of the example that speaks with SyncGroup's work leases.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from sync_runtime import PromptGroup, Publisher, Work
from sync_runtime.library.engines.transformers import engine_copy
from sync_runtime.library.work import WorkResult

from .model import WIRE
from .rollout import PayloadError, Request, Rollout, roll_out


@dataclass(frozen=True)
class Delivered:
    """A rollout, and the step that its version was published after."""

    request: Request
    rollout: Rollout
    policy_step: int
    worker: str


class Source(Protocol):
    """Takes prompt groups, gives rollouts, follows the masters."""

    def publish(self, step: int) -> None:
        """The masters are those after so many steps."""

    def submit(self, requests: Sequence[Request]) -> None:
        """Asks for rollouts."""

    def take(self, count: int) -> list[Delivered]:
        """So many rollouts that were not taken yet."""

    def state_dict(self) -> Any:
        """What is asked for and not taken; a part of the checkpoint, as JSON has it."""

    def load_state_dict(self, state: Any) -> None:
        """Goes on from there."""

    def sent_bytes(self) -> int | None:
        """Bytes of weights that left so far; None where nothing counts them."""


class InProcess:
    """No network: the reference that the run over the network must equal, bit for bit."""

    def __init__(self, masters: Any) -> None:
        self._masters, self._step = masters, 0
        self._engine = engine_copy(masters, WIRE)
        self._waiting: list[Request] = []

    def publish(self, step: int) -> None:
        """Casts the masters into the engine's own tensors."""
        masters = self._masters.state_dict()
        with torch.no_grad():
            for name, tensor in self._engine.state_dict().items():
                tensor.copy_(masters[name])
        self._step = step

    def submit(self, requests: Sequence[Request]) -> None:
        """Keeps them in order."""
        self._waiting += requests

    def take(self, count: int) -> list[Delivered]:
        """Makes them now, under the newest weights."""
        taken, self._waiting = self._waiting[:count], self._waiting[count:]
        return [
            Delivered(one, roll_out(self._engine.generate, one, self._engine.device), self._step, "here")
            for one in taken
        ]

    def state_dict(self) -> Any:
        """The requests that wait."""
        return [one.to_bytes().decode() for one in self._waiting]

    def load_state_dict(self, state: Any) -> None:
        """Waits for those."""
        self._waiting = [Request.from_bytes(one.encode()) for one in state]

    def sent_bytes(self) -> int | None:
        """There is no network."""
        return None


class LostGroupError(Exception):
    """A prompt group that no worker could do, or that came back as something else."""


class Leased:
    """Workers elsewhere: weights through a Publisher, prompt groups through work leases."""

    def __init__(
        self,
        publisher: Publisher,
        work: Work,
        vocabulary: int,
        *,
        timeout_s: float,
        count_bytes: Callable[[], int] | None = None,
    ) -> None:
        self._publisher, self._work, self._vocabulary = publisher, work, vocabulary
        self._timeout_s, self._count_bytes = timeout_s, count_bytes
        self._asked: dict[str, Request] = {}

    def publish(self, step: int) -> None:
        """A version; workers fetch it while the next prompts are made."""
        self._publisher.publish(step=step)

    def submit(self, requests: Sequence[Request]) -> None:
        """Hands the groups to the sidecar; those that it has already are not doubled."""
        self._asked |= {one.id: one for one in requests}
        self._work.submit([PromptGroup(id=one.id, payload=one.to_bytes(), samples=one.samples) for one in requests])

    def take(self, count: int) -> list[Delivered]:
        """Waits for so many results; each is consumed when the next is asked for, the last one at once."""
        found: list[Delivered] = []
        for result in self._work.results(timeout=self._timeout_s):
            found.append(self._read(result))
            if len(found) == count:
                self._work.commit()
                return found
        raise LostGroupError(f"{count} results were asked for; {len(found)} came, and nothing else is on its way")

    def _read(self, result: WorkResult) -> Delivered:
        request = self._asked.pop(result.id, None)
        if request is None or result.version is None:
            raise LostGroupError(f"group {result.id} was not done: {result.failed or 'nobody asked for it'}")
        try:
            rollout = Rollout.from_bytes(result.payload, request, self._vocabulary)
        except PayloadError as error:
            raise LostGroupError(f"{result.worker}: {error}") from error
        return Delivered(request, rollout, result.version.step or 0, result.worker)

    def state_dict(self) -> Any:
        """The ledger, and what was asked for."""
        return {"work": self._work.state_dict(), "asked": [one.to_bytes().decode() for one in self._asked.values()]}

    def load_state_dict(self, state: Any) -> None:
        """The ledger as it was then: what was consumed since is asked for again."""
        asked = [Request.from_bytes(one.encode()) for one in state["asked"]]
        self._asked = {one.id: one for one in asked}
        self._work.load_state_dict(state["work"])

    def sent_bytes(self) -> int | None:
        """As the sidecar counts them."""
        return None if self._count_bytes is None else self._count_bytes()
