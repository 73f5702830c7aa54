"""A ledger as a document in the user's checkpoint, and back. Pure.

JSON-able, versioned and bounded: every group that is not consumed, results included; no leases, since whoever loads it
starts where nobody works yet. What is loaded may come from anywhere and is checked field by field.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any, Final, cast

from sync_runtime.contract.strict_json import loads_strict
from sync_runtime.errors import WorkError
from sync_runtime.work.ledger import Ledger
from sync_runtime.work.model import MAX_GROUPS, ORDERS, Begun, Change, Done, Order, Submitted, WorkVersion

FORMAT: Final = 1
MAX_STATE_BYTES: Final = 512 << 20
_MAX_NUMBER: Final = 2**53 - 1


def to_json(ledger: Ledger) -> bytes:
    """The document of a ledger, as text."""
    groups: dict[int, dict[str, Any]] = {}
    done: list[dict[str, Any]] = []
    for change in ledger.snapshot():
        if isinstance(change, Submitted):
            groups[change.number] = {
                "number": change.number, "id": change.id, "samples": change.samples, "attempts": change.attempts,
                "payload": _packed(change.payload),
            }  # fmt: skip
        elif isinstance(change, Done):
            done.append(_done_document(change))
    found = {
        "format": FORMAT, "epoch": ledger.epoch, "order": ledger.order, "next_number": ledger.next_number,
        "groups": list(groups.values()), "done": done,
    }  # fmt: skip
    return json.dumps(found, separators=(",", ":"), sort_keys=True).encode()


def from_json(text: bytes, before: Ledger, now_s: float) -> Ledger:
    """The ledger of a document in place of another one, in a new epoch; raises WorkError."""
    try:
        document = _fields(loads_strict(text, 8), "format", "epoch", "order", "next_number", "groups", "done")
        made = before.successor()
        for change in _changes(document, before.epoch):
            made.apply(change, now_s)
    except (ValueError, TypeError, KeyError) as error:
        raise WorkError(f"the state of the work ledger cannot be read: {error}") from error
    return made


def _changes(document: Mapping[str, Any], epoch: int) -> list[Change]:
    if document["format"] != FORMAT:
        raise WorkError(f"the state has format {document['format']!r:.20}; this release reads {FORMAT}")
    if document["order"] not in ORDERS or len(document["groups"]) > MAX_GROUPS:
        raise ValueError("its order is unknown, or it has too many groups")
    order = cast("Order", document["order"])
    epoch = max(epoch, _number(document["epoch"])) + 1
    found: list[Change] = [Begun(epoch, _number(document["next_number"]), order)]
    for one in document["groups"]:
        group = _fields(one, "number", "id", "samples", "attempts", "payload")
        number, samples, attempts = (_number(group[name]) for name in ("number", "samples", "attempts"))
        found.append(Submitted(number, _text(group["id"]), samples, attempts, _bytes(group["payload"])))
    found += [_done(one) for one in document["done"]]
    return found


def _done_document(change: Done) -> dict[str, Any]:
    version = change.version
    return {
        "number": change.number, "lease": change.lease, "worker": change.worker, "tokens": change.tokens,
        "failed": change.failed, "payload": _packed(change.payload),
        "version": None if version is None else [version.lineage, version.seq, version.digest, version.step],
    }  # fmt: skip


def _done(document: object) -> Done:
    one = _fields(document, "number", "lease", "worker", "tokens", "failed", "payload", "version")
    version = None
    if one["version"] is not None:
        lineage, seq, digest, step = one["version"]
        version = WorkVersion(_text(lineage), _number(seq), _text(digest), None if step is None else int(step))
    return Done(
        number=_number(one["number"]),
        lease=None if one["lease"] is None else _text(one["lease"]),
        worker=_text(one["worker"]),
        version=version,
        tokens=_number(one["tokens"]),
        failed=None if one["failed"] is None else _text(one["failed"]),
        payload=_bytes(one["payload"]),
    )


def _fields(document: object, *names: str) -> Mapping[str, Any]:
    if not isinstance(document, dict) or set(document) != set(names):
        raise ValueError(f"an object must have exactly the fields {', '.join(names)}")
    return document


def _number(value: object) -> int:
    if type(value) is not int or not 0 <= value <= _MAX_NUMBER:
        raise ValueError(f"{value!r:.40} is no number that can be here")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str) or len(value) > 512:
        raise ValueError("a text is none, or too long")
    return value


def _packed(payload: bytes) -> str:
    return base64.b64encode(payload).decode("ascii")


def _bytes(value: object) -> bytes:
    try:
        return base64.b64decode(_any_text(value), validate=True)
    except binascii.Error as error:
        raise ValueError(f"a payload is not base64: {error}") from error


def _any_text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("a payload is no text")  # noqa: TRY004 one kind of error for all that is wrong with a document
    return value
