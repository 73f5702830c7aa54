"""Which pointer may replace which, and which one a reader may believe (STORE.md, sections 4 and 5). Pure.

Signatures are checked before; here the trainer's own words are compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from sync_runtime.errors import OldTermError, TermConflictError, WrongGroupError
from sync_runtime.transport.object_store.pointer import Pointer


@dataclass(frozen=True)
class Claim:
    """Who a publisher is."""

    group: str
    term: int
    incarnation: str
    place: str


class Found(Enum):
    """What a publisher does about a pointer that it did not expect."""

    MINE = "the one just put: its answer was lost"
    OLDER = "an older one of this place: the store lost a write; put again on its tag"


def check_claimable(found: Pointer, claim: Claim) -> None:
    """Whether a publisher that opens may take over from this pointer; raises FenceError."""
    _check_group(found, claim.group)
    if found.term > claim.term:
        raise OldTermError(f"the store follows term {found.term}; this trainer's is {claim.term} and was replaced")
    if found.term == claim.term and found.incarnation != claim.incarnation:
        raise TermConflictError(f"another trainer writes to the store under term {claim.term}")


def judge_found(found: Pointer, put: Pointer) -> Found:
    """What lies there after a conditional put of ours was refused or not answered; raises FenceError."""
    check_claimable(found, Claim(put.group, put.term, put.incarnation, put.place))
    if found.term == put.term and found.place != put.place:
        raise TermConflictError(f"a second process of this trainer writes to the store, in place {found.place}")
    if found == put:
        return Found.MINE
    if found.term == put.term and found.revision >= put.revision:
        raise TermConflictError(f"revision {found.revision} of the pointer was written here by somebody else")
    return Found.OLDER


@dataclass(frozen=True)
class Seen:
    """The newest that a reader has accepted, also over restarts."""

    term: int = 0
    incarnation: str = ""
    revision: int = 0


def is_news(found: Pointer, group: str, seen: Seen) -> bool:
    """Whether a reader follows this pointer; False: an old copy, or the one it knows. Raises FenceError."""
    _check_group(found, group)
    if found.term < seen.term:
        raise OldTermError(f"the store's pointer is of term {found.term}; term {seen.term} was proved")
    if found.term == seen.term and seen.incarnation not in {"", found.incarnation}:
        raise TermConflictError(f"two trainers claim term {found.term}")
    return found.order > (seen.term, seen.revision)


def _check_group(found: Pointer, group: str) -> None:
    if found.group != group:
        raise WrongGroupError(f"the store's pointer is of group {found.group}: give every group a prefix of its own")
