"""What can go wrong with states and deltas, as a tree; every class says whether trying again can help.

    SyncError
    ├── FormatError              the bytes are not what FORMAT.md says; the same bytes never become right
    │   ├── TruncatedError       they end too early
    │   ├── UnknownFormatError   written by a version, or with a mode, that this reader does not know
    │   └── LimitError           a size above the limit; refused before anything was allocated
    ├── LayoutError              tensors and layout do not fit: a name, shape, dtype or grid
    ├── SequenceError            right bytes, wrong moment: ask for another object
    │   ├── WrongBaseError       the delta starts from another state than the one at hand
    │   ├── ReplayError          the delta was applied already
    │   └── ChainError           deltas to merge that do not follow each other
    ├── DigestError              integrity: the bytes decode, but not to the promised state; nothing was changed
    ├── MissingBaseError         `tight` bytes without the old weights they were coded against
    ├── FenceError               from another group, an older trainer, or a rival of the current one
    │   ├── WrongGroupError
    │   ├── OldTermError
    │   ├── UnprovedTermError    a term that no trainer has signed
    │   └── TermConflictError    two trainers claim one term
    ├── SignatureError           a manifest, or a term, that no trainer of this group signed
    ├── TransportError           the other end, or the way to it, is away
    │   ├── RefusedError         the other end said no, and why
    │   └── FrameError           it sent what PROTOCOL.md does not allow
    ├── SpoolError               the spool's folder
    │   ├── SpoolFullError       no room; nothing of the attempt stays
    │   ├── SpoolCorruptError    what is on the disk is not what was written
    │   └── SpoolLockedError     another process owns it
    ├── LocalError               user's process and sidecar
    │   ├── NothingWrittenError  an apply that ended before its first element
    │   ├── SidecarLostError
    │   ├── LibraryLostError
    │   ├── LocalProtocolError   no common version, or a message out of place
    │   └── (library.export_errors) between the user's process and its GPU worker
    ├── WorkError                prompt groups and results
    │   ├── WorkFullError        more is open than the ledger holds
    │   ├── WorkRefusedError     a result that cannot count any more; its work was given back
    │   └── WorkTimeoutError     no result came in time
    ├── SettingsError            a setting, variable or file of the user's that cannot be used
    └── IllegalEventError        a state machine met an event its state does not know: a bug of ours

A *sequence* fault is mended by another object, an *integrity* fault by the same object from another place. Knows
nothing of numpy, torch, sockets or Kubernetes; other libraries' exceptions are translated where they are caught.
"""

from __future__ import annotations

from typing import ClassVar


class SyncError(Exception):
    """Anything of ours. The message is a sentence."""

    retry_helps: ClassVar[bool] = False
    """Whether the same request can succeed later without any change."""


class FormatError(SyncError):
    """The bytes break the format."""


class TruncatedError(FormatError):
    """The bytes end before what they announce."""


class UnknownFormatError(FormatError):
    """A version, kind, mode or dtype that this reader does not know."""


class LimitError(FormatError):
    """A size above the format's limit."""


class LayoutError(SyncError):
    """A state does not have the tensors of the layout, or no layout can be made of it."""


class SequenceError(SyncError):
    """The object is sound but does not belong here."""


class WrongBaseError(SequenceError):
    """The state at hand is not the delta's base."""


class ReplayError(SequenceError):
    """The state at hand is the delta's target already."""


class ChainError(SequenceError):
    """One delta's target is not the next one's base."""


class DigestError(SyncError):
    """What was decoded has another digest than the manifest promises."""

    retry_helps: ClassVar[bool] = True  # the same object from another place may be whole


class MissingBaseError(SyncError):
    """The old weights are needed and were not given."""


class FenceError(SyncError):
    """Sound, but not from the group, term or trainer that is followed here."""


class WrongGroupError(FenceError):
    """From another SyncGroup."""


class OldTermError(FenceError):
    """From a trainer that was replaced."""


class UnprovedTermError(FenceError):
    """Of a term that somebody names and no trainer has proved."""


class TermConflictError(FenceError):
    """From a second trainer that claims the current term."""


class SignatureError(SyncError):
    """A manifest, or a term, without a signature that this group trusts."""


class TransportError(SyncError):
    """The other end or the way to it is away."""

    retry_helps: ClassVar[bool] = True


class RefusedError(TransportError):
    """The other end refused, with a reason of PROTOCOL.md."""

    def __init__(self, reason: str, message: str, *, retry: bool) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.retry = retry


class FrameError(TransportError):
    """A frame or message that breaks the protocol; the connection is closed."""


class SpoolError(SyncError):
    """The spool cannot do what was asked."""


class SpoolFullError(SpoolError):
    """The disk or its quota is full."""

    retry_helps: ClassVar[bool] = True


class SpoolCorruptError(SpoolError):
    """Bytes on the disk do not have the hash they were stored under."""


class SpoolLockedError(SpoolError):
    """Another process holds the spool's lock."""


class LocalError(SyncError):
    """Between the user's process and its sidecar."""


class NothingWrittenError(LocalError):
    """An apply that ended before its first element: live weights are what they were."""


class SidecarLostError(LocalError):
    """The sidecar went away; it is dialled again in the background."""

    retry_helps: ClassVar[bool] = True


class LibraryLostError(LocalError):
    """The user's process went away."""

    retry_helps: ClassVar[bool] = True


class LocalProtocolError(LocalError):
    """The other end speaks another version, or out of turn."""


class WorkError(SyncError):
    """A prompt group, a result or a state of the ledger that cannot be used."""


class WorkFullError(WorkError):
    """The ledger holds as much as it may; consuming results makes room."""

    retry_helps: ClassVar[bool] = True


class WorkRefusedError(WorkError):
    """A result that does not count: its work lease ended, or it was made under other weights."""


class WorkTimeoutError(WorkError, TimeoutError):
    """No result came in the time that the caller gave."""

    retry_helps: ClassVar[bool] = True


class SettingsError(SyncError):
    """A setting that cannot be used; the sentence says which and what is allowed."""


class IllegalEventError(SyncError):
    """An event that the current state does not list."""
