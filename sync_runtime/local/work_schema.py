"""The messages of work leases on the local protocol: their numbers, limits, and the rule of every field."""

from __future__ import annotations

from typing import Final

from sync_runtime.local import work_messages as w
from sync_runtime.local.fields import (
    MAX_INT,
    Spec,
    boolean,
    integer,
    matching,
    one_of,
    optional,
    record,
    text,
    tuple_of,
)

MAX_PAYLOAD_BYTES: Final = 64 << 20
"""Of one prompt or result; a plan allows less, usually."""
MAX_BATCH: Final = 4096
"""Groups of one SUBMIT."""
MAX_STATE_BYTES: Final = 512 << 20
MAX_WAIT_MS: Final = 60_000
_KIB: Final = 1 << 10
_HEAD_BYTES: Final = 16 * _KIB
_DIGEST = matching("[0-9a-f]{32}", "32 hexadecimal digits")
_ID = text(256)
_LEASE = matching("[0-9]{1,20}-[0-9]{1,20}-[0-9]{1,20}", "the name of a work lease")
_ORDER = one_of("throughput", "fixed")
_SAMPLES = integer(0, 1 << 31)
_STEP = optional(integer(-MAX_INT - 1))
_VERSION = optional(
    record(w.VersionName, {"lineage": _DIGEST, "seq": integer(), "digest": _DIGEST, "step": _STEP})
)  # fmt: skip
_ENTRY = record(w.GroupEntry, {"id": _ID, "samples": _SAMPLES, "bytes": integer(0, MAX_PAYLOAD_BYTES)})
_WAIT = {"wait_ms": integer(0, MAX_WAIT_MS)}

WORK_SPECS: Final = (
    Spec(64, w.Submit, MAX_PAYLOAD_BYTES + (1 << 20), {"order": _ORDER, "groups": tuple_of(_ENTRY, MAX_BATCH)}, True),
    Spec(65, w.Submitted, 4 * _KIB, {"added": integer(), "pending": integer()}),
    Spec(66, w.Next, 4 * _KIB, {"order": _ORDER, "consumed": optional(integer()), **_WAIT}),
    Spec(67, w.Result, MAX_PAYLOAD_BYTES + _HEAD_BYTES, {
        "delivery": optional(integer()), "id": text(128), "samples": integer(0, 65_536), "worker": text(253),
        "version": _VERSION, "tokens": integer(), "failed": optional(text(512)), "pending": integer(),
    }, True),
    Spec(68, w.State, 4 * _KIB, {"consumed": optional(integer())}),
    Spec(69, w.Stated, MAX_STATE_BYTES + _HEAD_BYTES, {}, True),
    Spec(70, w.Load, MAX_STATE_BYTES + _HEAD_BYTES, {}, True),
    Spec(71, w.Loaded, 4 * _KIB, {"pending": integer()}),
    Spec(72, w.Take, 4 * _KIB, {"version": _VERSION, **_WAIT}),
    Spec(73, w.Task, MAX_PAYLOAD_BYTES + _HEAD_BYTES, {
        "lease": optional(_LEASE), "id": text(128), "samples": integer(0, 65_536), "version": _VERSION,
    }, True),
    Spec(74, w.Complete, MAX_PAYLOAD_BYTES + _HEAD_BYTES, {
        "lease": _LEASE, "version": _VERSION, "tokens": integer(),
    }, True),
    Spec(75, w.Completed, 8 * _KIB, {"taken": boolean, "reason": text(64), "message": text(1024)}),
    Spec(76, w.Release, 4 * _KIB, {"lease": _LEASE, "reason": text(256), "failed": boolean}),
    Spec(77, w.Released, 4 * _KIB, {}),
)  # fmt: skip
