"""The state machines of PROTOCOL.md, section 4: tables of (state, event) -> (state, effects), and nothing else.

Pure: no clock, no input or output. A table says what follows; whoever owns the machine carries the effects out. An
event that a state does not list is a bug of ours and raises: guessing would put weights at risk.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Generic, TypeVar

from sync_runtime.errors import IllegalEventError

S = TypeVar("S", bound=Enum)
E = TypeVar("E", bound=Enum)
F = TypeVar("F", bound=Enum)


@dataclass(frozen=True)
class Step(Generic[S, F]):
    """Where an event leads, and what is to be done on the way, in order."""

    state: S
    effects: tuple[F, ...] = ()


Table = Mapping[tuple[S, E], Step[S, F]]


@dataclass
class Machine(Generic[S, E, F]):
    """A state and the table it moves by."""

    table: Table[S, E, F]
    state: S
    history: list[tuple[S, E]] = field(default_factory=list)
    """The last moves, for an error's message."""

    def allows(self, event: E) -> bool:
        """Whether the current state lists this event."""
        return (self.state, event) in self.table

    def feed(self, event: E) -> tuple[F, ...]:
        """Moves; returns the effects. Raises IllegalEventError and stays where it is."""
        step = self.table.get((self.state, event))
        if step is None:
            way = ", ".join(f"{state.name} + {seen.name}" for state, seen in self.history[-4:])
            raise IllegalEventError(f"{event.name} cannot happen in {self.state.name} (before: {way or 'nothing'})")
        self.history = [*self.history[-7:], (self.state, event)]
        self.state = step.state
        return step.effects


# ------------------------------------------------------------------------------------------------ the trainer's sidecar


class PublishState(Enum):
    """What the publisher's session is doing."""

    WAITING = "Waiting"
    OPENING = "Opening"
    IDLE = "Idle"
    WRITING = "Writing"
    COMMITTING = "Committing"


class PublishEvent(Enum):
    """What happens to it."""

    LIBRARY_OPENS = "library opens"
    DIGEST_KNOWN = "digest known"
    PUBLISH = "publish"
    OBJECT_COMPLETE = "object complete"
    DURABLE = "durable"
    FAILED = "failed"
    LIBRARY_GONE = "library gone"


class PublishEffect(Enum):
    """What is to be done."""

    TAKE_STATE = "take the state and its full digest"
    CHOOSE_LINEAGE = "continue a lineage or start one; answer OPENED"
    BEGIN_OBJECT = "begin an object in the spool"
    COMMIT = "sign and make durable"
    ADVANCE = "advance the mirror; answer PUBLISHED; tell everyone"
    ABORT_OBJECT = "remove what was written, abort its transfers"
    ANSWER_FAILURE = "answer ERROR"
    FORGET_LIBRARY = "drop the connection; report it"


_P, _PE, _PF = PublishState, PublishEvent, PublishEffect

PUBLISHING: Table[PublishState, PublishEvent, PublishEffect] = {
    (_P.WAITING, _PE.LIBRARY_OPENS): Step(_P.OPENING, (_PF.TAKE_STATE,)),
    (_P.OPENING, _PE.DIGEST_KNOWN): Step(_P.IDLE, (_PF.CHOOSE_LINEAGE,)),
    (_P.OPENING, _PE.FAILED): Step(_P.WAITING, (_PF.ANSWER_FAILURE,)),
    (_P.OPENING, _PE.LIBRARY_GONE): Step(_P.WAITING, (_PF.FORGET_LIBRARY,)),
    (_P.IDLE, _PE.PUBLISH): Step(_P.WRITING, (_PF.BEGIN_OBJECT,)),
    (_P.IDLE, _PE.LIBRARY_GONE): Step(_P.WAITING, (_PF.FORGET_LIBRARY,)),
    (_P.WRITING, _PE.OBJECT_COMPLETE): Step(_P.COMMITTING, (_PF.COMMIT,)),
    (_P.WRITING, _PE.FAILED): Step(_P.IDLE, (_PF.ABORT_OBJECT, _PF.ANSWER_FAILURE)),
    (_P.WRITING, _PE.LIBRARY_GONE): Step(_P.WAITING, (_PF.ABORT_OBJECT, _PF.FORGET_LIBRARY)),
    (_P.COMMITTING, _PE.DURABLE): Step(_P.IDLE, (_PF.ADVANCE,)),
    (_P.COMMITTING, _PE.FAILED): Step(_P.IDLE, (_PF.ABORT_OBJECT, _PF.ANSWER_FAILURE)),
    # What is being made durable may become so: the next opening's digest tells which of the two versions it is.
    (_P.COMMITTING, _PE.LIBRARY_GONE): Step(_P.WAITING, (_PF.FORGET_LIBRARY,)),
}


# ------------------------------------------------------------------------------------------------- a member's service


class ServiceState(Enum):
    """What a member does for its engine."""

    STARTING = "Starting"
    JOINING = "Joining"
    FOLLOWING = "Following"
    ACTIVATING = "Activating"
    SCRUBBING = "Scrubbing"
    POISONED = "Poisoned"


class ServiceEvent(Enum):
    """What happens to it."""

    KNOWN_DIGEST = "library opens with the digest of a known version"
    UNKNOWN_DIGEST = "library opens with another digest"
    LEVEL = "anchor and deltas applied, full digest right"
    ACTIVATE = "activate: staged, term current"
    APPLIED = "applied"
    INTERRUPTED = "interrupted"
    SCRUB = "scrub begins"
    SCRUB_PASSED = "scrub passed"
    SCRUB_FAILED = "scrub failed"
    REPAIRED = "blocks repaired"
    LINEAGE_LOST = "no way from here into the current lineage"
    LIBRARY_GONE = "library gone"


class ServiceEffect(Enum):
    """What is to be done."""

    FOLLOW = "tell the parent what is held"
    ASK_ANCHOR = "ask for an anchor, out of service"
    GIVE_LEAVE = "answer GO"
    ADVANCE = "advance mirror and version; tell parent and lease"
    TRUST = "results count since this version's activation"
    POISON = "refuse results since the last good scrub; ask for the blocks that differ"
    FORGET_STAGED = "the redo list dies with the process it was for"
    REPORT = "write a report now"


_S, _SE, _SF = ServiceState, ServiceEvent, ServiceEffect

SERVICE: Table[ServiceState, ServiceEvent, ServiceEffect] = {
    (_S.STARTING, _SE.KNOWN_DIGEST): Step(_S.FOLLOWING, (_SF.FOLLOW, _SF.REPORT)),
    (_S.STARTING, _SE.UNKNOWN_DIGEST): Step(_S.JOINING, (_SF.ASK_ANCHOR, _SF.REPORT)),
    # The index of versions may come after the library opened: the same digest can turn out to be a known one.
    (_S.JOINING, _SE.KNOWN_DIGEST): Step(_S.FOLLOWING, (_SF.FOLLOW, _SF.REPORT)),
    (_S.JOINING, _SE.UNKNOWN_DIGEST): Step(_S.JOINING, (_SF.ASK_ANCHOR,)),
    (_S.JOINING, _SE.LEVEL): Step(_S.FOLLOWING, (_SF.ADVANCE, _SF.FOLLOW, _SF.TRUST, _SF.REPORT)),
    (_S.FOLLOWING, _SE.ACTIVATE): Step(_S.ACTIVATING, (_SF.GIVE_LEAVE,)),
    (_S.FOLLOWING, _SE.SCRUB): Step(_S.SCRUBBING),
    (_S.FOLLOWING, _SE.LINEAGE_LOST): Step(_S.JOINING, (_SF.FORGET_STAGED, _SF.ASK_ANCHOR, _SF.REPORT)),
    (_S.ACTIVATING, _SE.APPLIED): Step(_S.FOLLOWING, (_SF.ADVANCE, _SF.REPORT)),
    (_S.ACTIVATING, _SE.INTERRUPTED): Step(_S.FOLLOWING),
    (_S.SCRUBBING, _SE.SCRUB_PASSED): Step(_S.FOLLOWING, (_SF.TRUST, _SF.REPORT)),
    (_S.SCRUBBING, _SE.SCRUB_FAILED): Step(_S.POISONED, (_SF.POISON, _SF.REPORT)),
    (_S.SCRUBBING, _SE.ACTIVATE): Step(_S.ACTIVATING, (_SF.GIVE_LEAVE,)),  # a scrub gives way; the next one follows
    (_S.POISONED, _SE.REPAIRED): Step(_S.SCRUBBING),
    **{
        (state, _SE.LIBRARY_GONE): Step(_S.STARTING, (_SF.FORGET_STAGED, _SF.REPORT))
        for state in ServiceState
        if state is not _S.STARTING
    },
}


# ------------------------------------------------------------------------------------------------- a member's transfer


class TransferState(Enum):
    """How far an object is on its way into the engine."""

    RECEIVING = "Receiving"
    COMPLETE = "Complete"
    DECODING = "Decoding"
    STAGED = "Staged"
    DONE = "Done"
    DROPPED = "Dropped"


class TransferEvent(Enum):
    """What happens to it."""

    ALL_KEPT = "manifest good, all buckets kept"
    BASE_READY = "its base is held or staged"
    LIST_RIGHT = "decoded, list digest right"
    ACTIVATED = "activated"
    SEQUENCE_FAULT = "sequence fault"
    INTEGRITY_FAULT = "integrity fault"
    ABANDONED = "aborted, superseded, or of a lineage that is not followed any more"
    LIBRARY_GONE = "library gone"


class TransferEffect(Enum):
    """What is to be done."""

    COMMIT = "make the object durable in the spool"
    DECODE = "decode against live weights under what is staged"
    HAND_OVER = "hand the list to the library"
    FORGET = "forget the object"
    FOLLOW_ANEW = "tell the parent what is really held"
    PROVE = "take a full digest: is the base wrong, or the object?"


_T, _TE, _TF = TransferState, TransferEvent, TransferEffect
_DROP = Step(_T.DROPPED, (_TF.FORGET,))

TRANSFER: Table[TransferState, TransferEvent, TransferEffect] = {
    (_T.RECEIVING, _TE.ALL_KEPT): Step(_T.COMPLETE, (_TF.COMMIT,)),
    (_T.RECEIVING, _TE.ABANDONED): _DROP,
    (_T.RECEIVING, _TE.LIBRARY_GONE): Step(_T.RECEIVING),
    (_T.COMPLETE, _TE.BASE_READY): Step(_T.DECODING, (_TF.DECODE,)),
    (_T.COMPLETE, _TE.ABANDONED): _DROP,
    (_T.COMPLETE, _TE.LIBRARY_GONE): Step(_T.COMPLETE),
    (_T.DECODING, _TE.LIST_RIGHT): Step(_T.STAGED, (_TF.HAND_OVER,)),
    (_T.DECODING, _TE.SEQUENCE_FAULT): Step(_T.DROPPED, (_TF.FORGET, _TF.FOLLOW_ANEW)),
    (_T.DECODING, _TE.INTEGRITY_FAULT): Step(_T.DROPPED, (_TF.FORGET, _TF.PROVE)),
    (_T.DECODING, _TE.ABANDONED): _DROP,
    (_T.DECODING, _TE.LIBRARY_GONE): Step(_T.COMPLETE),
    (_T.STAGED, _TE.ACTIVATED): Step(_T.DONE),
    (_T.STAGED, _TE.ABANDONED): _DROP,
    (_T.STAGED, _TE.LIBRARY_GONE): Step(_T.COMPLETE),
}


def publisher_machine() -> Machine[PublishState, PublishEvent, PublishEffect]:
    """The trainer's session."""
    return Machine(PUBLISHING, PublishState.WAITING)


def service_machine() -> Machine[ServiceState, ServiceEvent, ServiceEffect]:
    """A member's service."""
    return Machine(SERVICE, ServiceState.STARTING)


def transfer_machine() -> Machine[TransferState, TransferEvent, TransferEffect]:
    """One object on its way."""
    return Machine(TRANSFER, TransferState.RECEIVING)
