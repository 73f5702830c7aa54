"""What workers and their trainer say on a work connection (PROTOCOL.md, section 11.2). Values only."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final, TypeVar

from pydantic import Field

from sync_runtime.errors import FrameError
from sync_runtime.transport.body import Hex32, JsonMessage, Number, Reason, Sentence, read_model
from sync_runtime.transport.wire import FrameType

MAX_HELD: Final = 4096
MAX_HEAD_BYTES: Final = 16 << 10
_LENGTH: Final = struct.Struct("<I")

LeaseId = Annotated[str, Field(min_length=5, max_length=64, pattern="^[0-9]+-[0-9]+-[0-9]+$")]
GroupId = Annotated[str, Field(min_length=1, max_length=128, pattern="^[!-~]+$")]
Step = Annotated[int, Field(ge=-(2**63), lt=2**63)]


class Holding(JsonMessage):
    """What a worker still has; its other leases return."""

    TYPE = FrameType.HOLDING
    leases: Annotated[list[LeaseId], Field(max_length=MAX_HELD)]


class Take(JsonMessage):
    """A worker's live version, scrubbed, and how many groups more it wants."""

    TYPE = FrameType.TAKE
    lineage: Hex32 | None
    seq: Number | None
    digest: Hex32 | None
    want: Annotated[int, Field(ge=0, le=MAX_HELD)]


class TaskHead(JsonMessage):
    """What a lease names."""

    TYPE = FrameType.TASK
    lease: LeaseId
    id: GroupId
    samples: Annotated[int, Field(ge=1, le=65_536)]
    lineage: Hex32
    seq: Number
    digest: Hex32
    step: Step | None


class ResultHead(JsonMessage):
    """What a result was made under."""

    TYPE = FrameType.RESULT
    lease: LeaseId
    lineage: Hex32
    seq: Number
    digest: Hex32
    scrubbed: bool
    tokens: Number
    busy_ms: Number


class Verdict(JsonMessage):
    """What became of a result."""

    TYPE = FrameType.VERDICT
    lease: LeaseId
    reason: Reason
    message: Sentence
    retry: bool


class Return(JsonMessage):
    """A worker gives a lease back."""

    TYPE = FrameType.RETURN
    lease: LeaseId
    reason: Annotated[str, Field(max_length=256)]
    failed: bool


class Revoke(JsonMessage):
    """A lease ended."""

    TYPE = FrameType.REVOKE
    lease: LeaseId
    reason: Annotated[str, Field(max_length=256)]


@dataclass(frozen=True, slots=True)
class Task:
    """A group, handed out."""

    TYPE: ClassVar[FrameType] = FrameType.TASK
    head: TaskHead
    payload: bytes


@dataclass(frozen=True, slots=True)
class Result:
    """A group, brought back."""

    TYPE: ClassVar[FrameType] = FrameType.RESULT
    head: ResultHead
    payload: bytes


WORK_JSON: Final = (Holding, Take, Verdict, Return, Revoke)
_Head = TypeVar("_Head", TaskHead, ResultHead)


def pack_body(message: Task | Result) -> bytes:
    """Head and payload as one body."""
    head = message.head.body()
    return _LENGTH.pack(len(head)) + head + message.payload


def parse_task(body: bytes) -> Task:
    """Raises FrameError."""
    return Task(*_parts(FrameType.TASK, TaskHead, body))


def parse_result(body: bytes) -> Result:
    """Raises FrameError."""
    return Result(*_parts(FrameType.RESULT, ResultHead, body))


def _parts(kind: FrameType, model: type[_Head], body: bytes) -> tuple[_Head, bytes]:
    if len(body) < _LENGTH.size:
        raise FrameError(f"a {kind.name} message that is cut off")
    (length,) = _LENGTH.unpack_from(body)
    end = _LENGTH.size + length
    if length > MAX_HEAD_BYTES or end > len(body):
        raise FrameError(f"a {kind.name} message with a head of {length} bytes in {len(body)}")
    return read_model(kind, model, body[_LENGTH.size : end]), body[end:]
