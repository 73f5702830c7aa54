"""What owner and GPU worker say to each other (PROTOCOL.md, section 10), one frozen dataclass per message.

The *owner* is the process whose tensors are handed over. Plain data: `export_schema` checks what arrives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from sync_runtime.library.export_handles import StorageHandle, TensorHandle
from sync_runtime.library.version import Version

PROTOCOLS: Final = (1,)
MAX_TEXT_CHARACTERS: Final = 4096
LINK_ID: Final = 0
"""The id of an ERROR that is about the connection itself; it is closed then."""


@dataclass(frozen=True)
class Hello:
    """The owner's first message: what the worker shall be for it."""

    protocols: tuple[int, ...]
    kind: Literal["publisher", "subscriber"]
    rank: int
    world_size: int
    wire_dtype: str | None
    coder: Literal["sidecar", "library"] | None
    host_snapshot: bool
    auto_scrub: bool | None
    timeout_ms: int
    """How long the worker waits for a sidecar when it opens."""
    patience_ms: int


@dataclass(frozen=True)
class Welcome:
    """The worker's answer."""

    protocol: int


@dataclass(frozen=True)
class Failure:
    """An error; `id` is that of the request which it answers."""

    id: int
    kind: str
    message: str
    retry: bool


@dataclass(frozen=True)
class Export:
    """Handles of all tensors. The first one opens; later ones replace what was handed over before."""

    id: int
    generation: int
    device: str
    """The GPU's uuid; empty: the CPU."""
    storages: tuple[StorageHandle, ...]
    tensors: tuple[TensorHandle, ...]
    ties: tuple[tuple[str, str], ...]
    """(alias, name)."""


@dataclass(frozen=True)
class Opened:
    """The worker has opened with its sidecar."""

    id: int


@dataclass(frozen=True)
class Validate:
    """The worker is about to use tensors: are they still those of this generation?"""

    id: int
    generation: int


@dataclass(frozen=True)
class Valid:
    """They are. (They are not: EXPORT with the same id. They cannot be used: ERROR.)"""

    id: int
    generation: int


@dataclass(frozen=True)
class Publish:
    """Weights stand still and are written: make a version of them."""

    id: int
    step: int | None
    label: str


@dataclass(frozen=True)
class Published:
    """It is durable."""

    id: int
    version: Version


@dataclass(frozen=True)
class Activate:
    """Nobody reads the weights: switch."""

    id: int


@dataclass(frozen=True)
class Activated:
    """What was switched to; None: nothing."""

    id: int
    version: Version | None


@dataclass(frozen=True)
class Scrub:
    """Compare all weights with the version."""

    id: int


@dataclass(frozen=True)
class Scrubbed:
    """Whether they are it."""

    id: int
    passed: bool


@dataclass(frozen=True)
class Note:
    """For the member's report; no answer."""

    tokens_per_second: int | None


@dataclass(frozen=True)
class Close:
    """Hang up after the last version is out."""

    id: int
    drain_ms: int


@dataclass(frozen=True)
class Closed:
    """The last message of the worker."""

    id: int
    drained: bool


@dataclass(frozen=True)
class State:
    """What the worker's session knows; sent whenever it changes, and before every answer."""

    live: Version | None
    staged: Version | None
    stale: bool
    poisoned: bool


@dataclass(frozen=True)
class Beat:
    """The worker lives. `request` takes far longer than its like ever did: the GPU may hang."""

    request: str | None
    under_way_ms: int


Message = (
    Hello | Welcome | Failure | Export | Opened | Validate | Valid | Publish | Published | Activate | Activated | Scrub
    | Scrubbed | Note | Close | Closed | State | Beat
)  # fmt: skip
