"""A trainer of a tiny language model, and a member whose sidecar serves a checkpoint folder, for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from sync_runtime import Publisher
from sync_runtime.library.engines.transformers import engine_copy
from sync_runtime.offline.served.copies import read_note
from sync_runtime.offline.served.folder import CURRENT
from tests.support.groups import Group, Member, wait_for
from tests.support.language_models import tiny_llama

LEAF = Member("eu-0", "eu", ("trainer-0",), served=("served", "base"))
SHARD = "12KB"
"""So that checkpoints have several files."""


def bits_of(model: Any) -> dict[str, Any]:
    """All tensors as integers."""
    return {name: one.detach().view(torch.int16).clone() for name, one in model.state_dict().items()}


def same(model: Any, other: Any) -> bool:
    """Whether two models are equal, bit for bit."""
    mine, theirs = bits_of(model), bits_of(other)
    return mine.keys() == theirs.keys() and all(torch.equal(mine[name], theirs[name]) for name in mine)


def train(model: Any, step: int) -> None:
    """Some elements of every tensor."""
    with torch.no_grad():
        for at, one in enumerate(model.parameters()):
            one.view(torch.int16).reshape(-1)[(step + at) % 5 :: 7 + step % 3] += 1


class Run:
    """A trainer, and a member that serves a folder."""

    def __init__(self, folder: Path, group: Group, *, tied: bool = True, engine: str = "transformers") -> None:
        self.group, self.served = group, folder / "served"
        self.model = engine_copy(tiny_llama(tied=tied), torch.bfloat16)
        self.model.save_pretrained(folder / "base", max_shard_size=SHARD)
        group.start("trainer-0")
        self.publisher = self.opened(engine)

    def opened(self, engine: str = "transformers") -> Publisher:
        """A trainer with the model as it is."""
        return Publisher(self.model, engine=engine, socket=self.group.socket("trainer-0"))

    @property
    def path(self) -> Path:
        """Where the link leads now."""
        return (self.served / CURRENT).resolve()

    def loaded(self) -> Any:
        """What a reader loads now."""
        return AutoModelForCausalLM.from_pretrained(self.path, dtype=torch.bfloat16)

    def publish(self, step: int) -> int:
        """Trains and publishes; the version's number."""
        train(self.model, step)
        return self.publisher.publish(step=step).seq

    def reaches(self, seq: int) -> None:
        """Both the folder and the report say so."""

        def there() -> bool:
            version = self.group.ask("eu-0", "/v1/status")["report"].get("version")
            held = read_note(self.path) if (self.served / CURRENT).exists() else None
            return version is not None and held is not None and version["seq"] == seq == held.seq

        wait_for(there, 30, what=f"version {seq} in the folder")


def saved(model: Any, folder: Path) -> dict[str, bytes]:
    """A model's checkpoint, as transformers writes it."""
    model.save_pretrained(folder, max_shard_size=SHARD)
    return content(folder)


def content(folder: Path) -> dict[str, bytes]:
    """All shards, read one after the other; raises FileNotFoundError where the folder goes away meanwhile."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.suffix == ".safetensors"}
