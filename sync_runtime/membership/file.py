"""The lease of a member without Kubernetes: one JSON file, replaced at every renewal.

It holds what the Kubernetes Lease would, so that whoever reads one reads the other. Not fsynced: a lease says that a
process lives, and a machine that lost its power has none.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import json
from pathlib import Path
from typing import Any

from sync_runtime.contract.reports import MemberReport
from sync_runtime.membership.documents import MAX_LEASE_BYTES, LeaseName, new_lease, renewal_of, transitions_after
from sync_runtime.membership.errors import MembershipError


class FileLease:
    """A lease in `folder/<name>.json`."""

    def __init__(self, folder: Path, name: LeaseName) -> None:
        self._name = name
        self.path = folder / f"{name.name}.json"
        self._document: dict[str, Any] | None = None

    async def renew(self, report: MemberReport, duration_s: int, now: datetime.datetime) -> None:
        """Write the file anew; raises MembershipError."""
        document = self._renewed(report, duration_s, now)
        try:
            await asyncio.to_thread(_replace, self.path, json.dumps(document, indent=1))
        except OSError as error:
            raise MembershipError(f"cannot write {self.path}: {error.strerror}") from error
        self._document = document

    async def close(self) -> None:
        """Nothing to let go; the file stays."""

    def _renewed(self, report: MemberReport, duration_s: int, now: datetime.datetime) -> dict[str, Any]:
        if self._document is None:
            found = _read(self.path)
            transitions = transitions_after(found, self._name.holder) if found else 0
            return new_lease(self._name, report, duration_s, now, transitions)
        change = renewal_of(report, duration_s, now)
        old = self._document
        return {
            **old,
            "metadata": {**old["metadata"], **change["metadata"]},
            "spec": {**old["spec"], **change["spec"]},
        }


def _read(path: Path) -> dict[str, Any] | None:
    """What an earlier process left, if it makes sense; only counts are taken from it."""
    try:
        with path.open("rb") as file:
            found = json.loads(file.read(MAX_LEASE_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    spec = found.get("spec") if isinstance(found, dict) else None
    if not isinstance(spec, dict) or type(spec.get("leaseTransitions")) is not int:
        return None
    return {"spec": spec}


def _replace(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.new")
    try:
        draft.write_text(text)
        draft.replace(path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            draft.unlink()
