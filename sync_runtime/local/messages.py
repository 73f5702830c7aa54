"""What the two ends of the local protocol say (PROTOCOL.md, section 6), one frozen dataclass per message.

Plain data: `schema` checks what arrives and writes what leaves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from sync_runtime.local.ranges import Ranges
from sync_runtime.local.work_messages import WorkMessage

PROTOCOLS: Final = (1, 2)
"""Versions of the local protocol that this code speaks, the newest last."""
RECODES_SINCE: Final = 2
"""The first one in which a sidecar may ask a publisher for a version in another codec."""
MAX_LABEL_CHARACTERS: Final = 256
MAX_TEXT_CHARACTERS: Final = 4096

Kind = Literal["publisher", "subscriber", "work", "worker"]
Coder = Literal["sidecar", "library"]
Form = Literal["list", "object", "state"]


@dataclass(frozen=True)
class VersionRef:
    """A version by name alone."""

    lineage: str
    seq: int


@dataclass(frozen=True)
class Totals:
    """What the manifest of an object that the library made must say."""

    codec: str
    blocks: int
    changed: int
    digest: str
    digest_changes: str


@dataclass(frozen=True)
class Hello:
    """The library's first message."""

    protocols: tuple[int, ...]
    kind: Kind
    rank: int
    world_size: int
    pid: int
    coder: Coder
    version: str


@dataclass(frozen=True)
class Welcome:
    """The sidecar's answer; the ring's descriptor comes with it."""

    protocol: int
    ring_bytes: int
    group: str
    member: str
    term: int


@dataclass(frozen=True)
class Error:
    """`request` (the name of a message) failed; `kind` is a class of sync_runtime.errors."""

    request: str
    kind: str
    message: str
    retry: bool


@dataclass(frozen=True)
class Data:
    """Bytes of the current stream lie in the ring."""

    at: int
    size: int


@dataclass(frozen=True)
class Credit:
    """So many bytes of the ring may be written again."""

    size: int


@dataclass(frozen=True)
class End:
    """The current stream is complete."""

    totals: Totals | None = None
    timings_us: Mapping[str, int] | None = None


@dataclass(frozen=True)
class Cancel:
    """The current stream is void."""

    reason: str


@dataclass(frozen=True)
class Open:
    """Begins a stream: the layout document, and behind it the state if `state`."""

    layout_bytes: int
    state: bool
    digests: tuple[str, ...]
    resume: bool


@dataclass(frozen=True)
class Part:
    """One of several ranks, before its OPEN: the blocks that it counts, and those it holds besides."""

    blocks: Ranges
    copies: Ranges
    digests: str
    """Of a subscriber's blocks, one after the other: those that it counts, then its copies."""


@dataclass(frozen=True)
class Share:
    """What one of several ranks adds to the digest of the version that the next message names."""

    digest: str


@dataclass(frozen=True)
class Opened:
    """Where both go on; a subscriber whose state is no known version gets nulls."""

    lineage: str | None
    seq: int | None
    digest: str | None
    step: int | None
    continued: bool


@dataclass(frozen=True)
class Publish:
    """Begins a stream: the state, or an object."""

    step: int | None
    label: str
    codec: str


@dataclass(frozen=True)
class Published:
    """The version is durable."""

    lineage: str
    seq: int
    digest: str
    changed: int
    bytes: int
    timings_us: Mapping[str, int]


@dataclass(frozen=True)
class Close:
    """Let the last version out, for so long at most."""

    drain_ms: int


@dataclass(frozen=True)
class Closed:
    """Whether everyone has it."""

    drained: bool


@dataclass(frozen=True)
class Stage:
    """Begins a stream: what leads from `base` to a version. Without base: the version itself."""

    lineage: str
    seq: int
    digest: str
    step: int | None
    base: VersionRef | None
    form: Form
    bytes: int


@dataclass(frozen=True)
class Staged:
    """The version can be activated."""

    lineage: str
    seq: int
    timings_us: Mapping[str, int]


@dataclass(frozen=True)
class Activate:
    """Asks for leave."""

    lineage: str
    seq: int


@dataclass(frozen=True)
class Go:
    """Leave."""

    lineage: str
    seq: int
    term: int


@dataclass(frozen=True)
class Activated:
    """The version is in the live tensors."""

    lineage: str
    seq: int
    pause_us: int


@dataclass(frozen=True)
class Unstage:
    """Forget what was staged after this version; without one, everything staged."""

    version: VersionRef | None


@dataclass(frozen=True)
class Scrub:
    """The full digest of the live tensors, or begins a stream with their state if `state`."""

    lineage: str
    seq: int
    digest: str | None
    blocks: Ranges
    state: bool


@dataclass(frozen=True)
class Scrubbed:
    """Whether the live tensors are what they should be, and which blocks are not."""

    passed: bool
    blocks: Ranges


@dataclass(frozen=True)
class Blocks:
    """Asks a publisher with coder `library` for anchor blocks of its snapshot."""

    blocks: Ranges


@dataclass(frozen=True)
class Anchor:
    """Begins a stream: an anchor object with these blocks."""

    lineage: str
    seq: int
    blocks: Ranges


@dataclass(frozen=True)
class Recode:
    """Asks a publisher with coder `library` for the version that the next PUBLISHED names, in this codec too."""

    codec: str


@dataclass(frozen=True)
class Histograms:
    """Begins a stream: what one of several ranks counted for the tables of that object."""


@dataclass(frozen=True)
class Tables:
    """The tables that all ranks' counts make: a section as objects have it."""

    tables: str
    """In hexadecimal digits."""


@dataclass(frozen=True)
class Note:
    """Figures for reports and traces."""

    tokens_per_second: int | None
    timings_us: Mapping[str, int]


@dataclass(frozen=True)
class Known:
    """The state that a subscriber opened with turned out to be this version."""

    lineage: str
    seq: int
    digest: str
    step: int | None


@dataclass(frozen=True)
class Head:
    """The newest version that the sidecar knows of."""

    lineage: str
    seq: int
    digest: str
    step: int | None


@dataclass(frozen=True)
class Recheck:
    """Asks a subscriber for a SCRUB of the live weights, when its thread has time for it."""


Message = (
    Hello | Welcome | Error | Data | Credit | End | Cancel | Open | Opened | Publish | Published | Close | Closed
    | Stage | Staged | Activate | Go | Activated | Unstage | Scrub | Scrubbed | Blocks | Anchor | Note | Head
    | Known | Part | Share | Recheck | Recode | Histograms | Tables | WorkMessage
)  # fmt: skip

BEGINS_STREAM: Final = (Open, Publish, Stage, Anchor, Histograms)
"""Messages that DATA follows; so does Scrub where it says `state`."""


def begins_stream(message: Message) -> bool:
    """Whether DATA, then END or CANCEL follow."""
    return isinstance(message, BEGINS_STREAM) or (isinstance(message, Scrub) and message.state)


def name_of(message: Message | type[Any]) -> str:
    """How PROTOCOL.md and ERROR spell a message."""
    return (message if isinstance(message, type) else type(message)).__name__.upper()
