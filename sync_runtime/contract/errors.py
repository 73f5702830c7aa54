"""What can be wrong with a document of the contract, as sentences a user can act on.

    ContractError              a retry with the same bytes never helps
    ├── InvalidDocumentError   fields are wrong; carries one Problem per fault
    ├── MalformedJsonError     not JSON at all, or JSON that two readers could understand differently
    ├── DocumentTooLargeError  more bytes than the limit; refused before parsing
    └── UnsupportedFormatError written by a newer or older version than this reader knows

Knows nothing of pydantic: `documents` and `wire` translate at that border.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Problem:
    """One fault: where it is (`spec.rollouts[0].replicas`, empty for the document itself) and what to do about it."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class ContractError(ValueError):
    """A document breaks the contract. Sending the same bytes again cannot help."""


class InvalidDocumentError(ContractError):
    """Fields are missing, unknown, of the wrong kind, out of range, or contradict each other."""

    def __init__(self, what: str, problems: Sequence[Problem]) -> None:
        self.what = what
        self.problems = tuple(problems)
        super().__init__(f"{what} is not valid: " + "; ".join(str(problem) for problem in self.problems))


class MalformedJsonError(ContractError):
    """The bytes are no JSON object, or are ambiguous (a key given twice)."""


class DocumentTooLargeError(ContractError):
    """The bytes exceed the limit for their kind."""

    def __init__(self, what: str, size_bytes: int, limit_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes
        super().__init__(f"{what} has {size_bytes} bytes; the limit is {limit_bytes}")


class UnsupportedFormatError(ContractError):
    """The document's format version is none that this reader knows."""

    def __init__(self, what: str, found: object, supported: Sequence[int]) -> None:
        self.found = found
        self.supported = tuple(supported)
        known = ", ".join(str(version) for version in self.supported)
        super().__init__(
            f"{what} has formatVersion {found!r:.40}; this version reads {known}: "
            "upgrade whichever of operator and runtime is older"
        )
