"""The figures of a sidecar: all that its `/metrics` can show, in the order in which it shows them.

A figure that is not known is absent, never 0 or -1. `peer` is a child in the plan's tree, at most its fan-out; reasons,
stages and codecs are words of ours.
"""

from __future__ import annotations

from typing import Final

from sync_runtime.contract.figures import Figure

_STAGE_BOUNDS_S: Final = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
    300.0,
)
_PAUSE_BOUNDS_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_LINK: Final = ("peer", "to_cluster", "to_region")

# --- life -----------------------------------------------------------------------------------------------------------
STARTING: Final = Figure(
    "syncgroup_starting", "gauge", "1", "1 while the sidecar waits for its plan and its certificate; then absent."
)
DRAINING: Final = Figure("syncgroup_draining", "gauge", "1", "1 while it is being drained.")
LEASE_RENEWALS: Final = Figure("syncgroup_lease_renewals_total", "counter", "1", "Renewals of the member's lease.")
LEASE_FAILURES: Final = Figure(
    "syncgroup_lease_failures", "gauge", "1", "Renewals of the lease that failed in a row; 0 while all is well."
)
LEASE_AGE: Final = Figure("syncgroup_lease_age_seconds", "gauge", "seconds", "Since the lease was last renewed.")
CERTIFICATE_EXPIRY: Final = Figure(
    "syncgroup_certificate_expiry_timestamp_seconds",
    "gauge",
    "seconds since 1970",
    "When the member's certificate ends.",
)
STALE_PLANS: Final = Figure(
    "syncgroup_stale_plans_total", "counter", "1", "Plans refused because a newer one is in force."
)
SPANS_DROPPED: Final = Figure(
    "syncgroup_trace_spans_dropped_total", "counter", "1", "Spans that no trace backend took: it is away, or too slow."
)
PLAN_REVISION: Final = Figure("syncgroup_plan_revision", "gauge", "1", "The plan that it follows.")
TERM: Final = Figure("syncgroup_term", "gauge", "1", "Newest term of a trainer that it has seen.")
GPU_WORKER_UP: Final = Figure("syncgroup_gpu_worker_up", "gauge", "1", "1 while the GPU worker can be dialled.")
GPU_WORKER_STARTS: Final = Figure("syncgroup_gpu_worker_starts_total", "counter", "1", "Starts of the GPU worker.")

# --- versions -------------------------------------------------------------------------------------------------------
HEAD_SEQ: Final = Figure("syncgroup_head_seq", "gauge", "versions", "Number of the newest version that it knows of.")
VERSION_SEQ: Final = Figure(
    "syncgroup_version_seq", "gauge", "versions", "Number of the version that it serves; a trainer's: published last."
)
LAG: Final = Figure(
    "syncgroup_lag_versions", "gauge", "versions", "How many versions the one that it serves is behind the newest."
)
SYNC_SECONDS: Final = Figure(
    "syncgroup_sync_seconds", "histogram", "seconds",
    "From the first word of a version at this member until it was staged and verified there.", (), _STAGE_BOUNDS_S,
)  # fmt: skip
PAUSE_SECONDS: Final = Figure(
    "syncgroup_pause_seconds", "histogram", "seconds", "How long generation paused for a version.", (), _PAUSE_BOUNDS_S
)
STAGE_SECONDS: Final = Figure(
    "syncgroup_stage_seconds",
    "histogram",
    "seconds",
    "How long a stage of a version took.",
    ("stage",),
    _STAGE_BOUNDS_S,
)
SCRUBS: Final = Figure(
    "syncgroup_scrubs_total", "counter", "1", "Scrubs of the live weights: `Passed`, or `Failed` where bits differed.",
    ("result",),
)  # fmt: skip

# --- payloads: the newest version's own step --------------------------------------------------------------------------
PAYLOAD_BYTES: Final = Figure(
    "syncgroup_payload_bytes", "gauge", "bytes", "Size of the delta that leads to the newest version.", ("codec",)
)
PAYLOAD_BITS: Final = Figure(
    "syncgroup_payload_bits_per_changed_element",
    "gauge",
    "bits",
    "What a changed element costs in that delta.",
    ("codec",),
)
PAYLOAD_CHANGED: Final = Figure(
    "syncgroup_payload_changed_elements", "gauge", "elements", "Elements that differ between the newest two versions."
)
PAYLOAD_DENSITY: Final = Figure(
    "syncgroup_payload_density_ratio", "gauge", "ratio", "These elements as a share of all elements."
)
WEIGHTS_BYTES: Final = Figure(
    "syncgroup_weights_bytes", "gauge", "bytes", "Size of the full weights, as they would travel without deltas."
)
SPOOL_BYTES: Final = Figure("syncgroup_spool_bytes", "gauge", "bytes", "Bytes of all objects in the spool.")

# --- links to children ------------------------------------------------------------------------------------------------
CHILDREN: Final = Figure("syncgroup_children", "gauge", "members", "Members that receive from this one.")
LINK_RATE: Final = Figure(
    "syncgroup_link_rate_bits_per_second", "gauge", "bits per second", "Goodput over the last payloads.", _LINK
)
LINK_CAPACITY: Final = Figure(
    "syncgroup_link_capacity_bits_per_second",
    "gauge",
    "bits per second",
    "Estimate of what the link could carry.",
    _LINK,
)
LINK_UTILISATION: Final = Figure(
    "syncgroup_link_utilisation_ratio", "gauge", "ratio", "Goodput as a share of that estimate.", _LINK
)
LINK_RTT: Final = Figure("syncgroup_link_rtt_seconds", "gauge", "seconds", "Smoothed round-trip time.", _LINK)
LINK_MIN_RTT: Final = Figure(
    "syncgroup_link_min_rtt_seconds", "gauge", "seconds", "Least round-trip time of the last minute.", _LINK
)
LINK_LOSS: Final = Figure(
    "syncgroup_link_loss_ratio", "gauge", "ratio", "Share of sent bytes that were retransmitted.", _LINK
)
LINK_STREAMS: Final = Figure("syncgroup_link_streams", "gauge", "streams", "Streams in use.", _LINK)
LINK_BUCKET: Final = Figure(
    "syncgroup_link_bucket_bytes", "gauge", "bytes", "Size of a bucket that the link wants.", _LINK
)
LINK_SENT: Final = Figure(
    "syncgroup_link_sent_bytes_total",
    "counter",
    "bytes",
    "Bytes of objects sent over the link, since it was opened.",
    _LINK,
)
LINK_REPEATED: Final = Figure(
    "syncgroup_link_repeated_bytes_total", "counter", "bytes", "Those of them that were sent more than once.", _LINK
)
SUPERSEDED: Final = Figure(
    "syncgroup_superseded_transfers_total", "counter", "1", "Transfers that gave way to a merged one that ends sooner."
)
ASKED_AGAIN: Final = Figure(
    "syncgroup_asked_again_total", "counter", "1", "Requests that were repeated: by `children`, or to a `parent`.",
    ("of",),
)  # fmt: skip
REFUSALS: Final = Figure(
    "syncgroup_refusals_total", "counter", "1", "Connections, frames and manifests refused, by reason.", ("reason",)
)

# --- the object store -------------------------------------------------------------------------------------------------
STORE_UP: Final = Figure(
    "syncgroup_store_up", "gauge", "1", "1 while the object store does what this member needs of it; else 0."
)
STORE_SEQ: Final = Figure(
    "syncgroup_store_seq", "gauge", "versions", "Number of the newest version in the object store, as known here."
)
STORE_OBJECTS: Final = Figure(
    "syncgroup_store_objects_total", "counter", "1", "Versions `put` into the store, or objects `fetched`.", ("way",)
)
STORE_BYTES: Final = Figure("syncgroup_store_bytes_total", "counter", "bytes", "Bytes of these.", ("way",))
STORE_SECONDS: Final = Figure(
    "syncgroup_store_busy_seconds_total", "counter", "seconds", "Time spent on these.", ("way",)
)
STORE_FAILURES: Final = Figure(
    "syncgroup_store_failures_total",
    "counter",
    "1",
    "Turns at the store that failed after all repetitions, by reason.",
    ("reason",),
)

# --- work leases ------------------------------------------------------------------------------------------------------
WORK_GROUPS: Final = Figure(
    "syncgroup_work_groups",
    "gauge",
    "prompt groups",
    "Prompt groups at the trainer: `queued`, `leased`, `done`.",
    ("state",),
)
WORK_PROMPT_BYTES: Final = Figure("syncgroup_work_prompt_bytes", "gauge", "bytes", "Bytes of prompts in the ledger.")
WORK_RESULT_BYTES: Final = Figure("syncgroup_work_result_bytes", "gauge", "bytes", "Bytes of results in the ledger.")
WORK_TOKENS: Final = Figure("syncgroup_work_tokens_total", "counter", "tokens", "Tokens of results that count.")
WORK_RESULTS: Final = Figure(
    "syncgroup_work_results_total", "counter", "1", "Results that came, by what became of them.", ("reason",)
)
WORK_RETURNED: Final = Figure(
    "syncgroup_work_returned_total",
    "counter",
    "1",
    "Leased groups that went back into the queue, by reason.",
    ("reason",),
)
WORK_RATE: Final = Figure(
    "syncgroup_work_tokens_per_second",
    "gauge",
    "tokens per second",
    "What a worker generates, as measured.",
    ("worker",),
)
WORK_TASKS: Final = Figure(
    "syncgroup_work_tasks",
    "gauge",
    "prompt groups",
    "Groups at a worker: `waiting`, `in_hand`, `unjudged`.",
    ("state",),
)
WORK_VERDICTS: Final = Figure(
    "syncgroup_work_verdicts_total", "counter", "1", "What a worker was told of its results.", ("reason",)
)

FIGURES: Final = (
    STARTING, DRAINING, LEASE_RENEWALS, LEASE_FAILURES, LEASE_AGE, CERTIFICATE_EXPIRY, STALE_PLANS,
    SPANS_DROPPED, PLAN_REVISION, TERM,
    GPU_WORKER_UP, GPU_WORKER_STARTS,
    HEAD_SEQ, VERSION_SEQ, LAG, SYNC_SECONDS, PAUSE_SECONDS, STAGE_SECONDS, SCRUBS,
    PAYLOAD_BYTES, PAYLOAD_BITS, PAYLOAD_CHANGED, PAYLOAD_DENSITY, WEIGHTS_BYTES, SPOOL_BYTES,
    CHILDREN, LINK_RATE, LINK_CAPACITY, LINK_UTILISATION, LINK_RTT, LINK_MIN_RTT, LINK_LOSS, LINK_STREAMS, LINK_BUCKET,
    LINK_SENT, LINK_REPEATED, SUPERSEDED, ASKED_AGAIN, REFUSALS,
    STORE_UP, STORE_SEQ, STORE_OBJECTS, STORE_BYTES, STORE_SECONDS, STORE_FAILURES,
    WORK_GROUPS, WORK_PROMPT_BYTES, WORK_RESULT_BYTES, WORK_TOKENS, WORK_RESULTS, WORK_RETURNED, WORK_RATE, WORK_TASKS,
    WORK_VERDICTS,
)  # fmt: skip
