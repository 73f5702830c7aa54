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
    └── MissingBaseError         `tight` bytes without the old weights they were coded against

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
