"""The figures of the operator: all that its `/metrics` can show, in the order of the table.

What other controllers have too keeps the name that people know from there. Figures of groups come from the leader
alone, so that sums over replicas are right; they are what the groups' statuses say.
"""

from __future__ import annotations

from typing import Final

from sync_runtime.contract.figures import Figure

_REACTION_BOUNDS_S: Final = (
    0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5,
    2.5, 5.0, 10.0, 30.0, 60.0,
)  # fmt: skip
"""Fine where goals lie."""
_PASS_BOUNDS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_GROUP: Final = ("group_namespace", "group")
"""Not `namespace`: Prometheus gives that to whom it scrapes."""
_REGION: Final = (*_GROUP, "cluster", "region")

# --- groups, from the leader ------------------------------------------------------------------------------------------
GROUP_READY: Final = Figure("syncgroup_group_ready", "gauge", "1", "1 while the condition Ready is True.", _GROUP)
GROUP_STALLED: Final = Figure(
    "syncgroup_group_stalled",
    "gauge",
    "1",
    "1 while the condition Stalled is True: somebody must change something.",
    _GROUP,
)
GROUP_VERSION: Final = Figure(
    "syncgroup_group_version_seq",
    "gauge",
    "versions",
    "Number of the newest version that the trainer published.",
    _GROUP,
)
GROUP_LAG: Final = Figure(
    "syncgroup_group_lag_versions", "gauge", "versions", "Versions that the slowest ready member is behind.", _GROUP
)
GROUP_SYNC: Final = Figure(
    "syncgroup_group_sync_seconds", "gauge", "seconds", "How long a version took to the slowest ready member.", _GROUP
)
GROUP_TERM: Final = Figure(
    "syncgroup_group_term", "gauge", "1", "The trainer's term: grows when it is replaced.", _GROUP
)
GROUP_REPLACEMENTS: Final = Figure(
    "syncgroup_group_replacements_total", "counter", "1", "Members replaced since the group was created.", _GROUP
)
REGION_DESIRED: Final = Figure(
    "syncgroup_region_members_desired", "gauge", "members", "Members wanted in a region.", _REGION
)
REGION_READY: Final = Figure("syncgroup_region_members_ready", "gauge", "members", "Members that serve there.", _REGION)
REGION_LAG: Final = Figure(
    "syncgroup_region_lag_versions",
    "gauge",
    "versions",
    "Versions that the region's slowest ready member is behind.",
    _REGION,
)
REGION_RATE: Final = Figure(
    "syncgroup_region_link_rate_bits_per_second", "gauge", "bits per second",
    "Rate of the last payloads on the link that brings weights into the region.", _REGION,
)  # fmt: skip
REGION_RTT: Final = Figure(
    "syncgroup_region_link_rtt_seconds", "gauge", "seconds", "Smoothed round-trip time of that link.", _REGION
)
REGION_LOSS: Final = Figure(
    "syncgroup_region_link_loss_ratio", "gauge", "ratio", "Share of sent bytes that were retransmitted on it.", _REGION
)
REGION_STREAMS: Final = Figure("syncgroup_region_link_streams", "gauge", "streams", "Streams in use on it.", _REGION)
REGION_BUCKET: Final = Figure(
    "syncgroup_region_link_bucket_bytes", "gauge", "bytes", "Size of a bucket on it.", _REGION
)
REGION_UTILISATION: Final = Figure(
    "syncgroup_region_link_utilisation_ratio",
    "gauge",
    "ratio",
    "Share of the link's estimated capacity in use.",
    _REGION,
)

# --- what was done ----------------------------------------------------------------------------------------------------
REPLACEMENTS: Final = Figure(
    "syncgroup_replacements_total", "counter", "1", "Members replaced, by reason.", ("reason",)
)
LEASE_EXPIRIES: Final = Figure(
    "syncgroup_lease_expiries_total", "counter", "1", "Leases of members that were judged expired, replaced or not."
)
REPLACEMENT_SECONDS: Final = Figure(
    "syncgroup_replacement_seconds", "histogram", "seconds", "From judging a member lost to asking for its successor.",
    (), _REACTION_BOUNDS_S,
)  # fmt: skip
REPLACEMENT_OWN_SECONDS: Final = Figure(
    "syncgroup_replacement_own_seconds", "histogram", "seconds",
    "The same without the time in which answers of API servers were awaited.", (), _REACTION_BOUNDS_S,
)  # fmt: skip
REACTION_SECONDS: Final = Figure(
    "syncgroup_reaction_seconds", "histogram", "seconds",
    "From an event to the first request of the pass that it caused, by what the event was about.", ("why",),
    _REACTION_BOUNDS_S,
)  # fmt: skip
ACTIONS: Final = Figure("syncgroup_actions_total", "counter", "1", "Objects applied or deleted.")
SPANS_DROPPED: Final = Figure(
    "syncgroup_operator_trace_spans_dropped_total",
    "counter",
    "1",
    "Spans of passes that no trace backend took: it is away, or too slow.",
)
STATUS_WRITES: Final = Figure("syncgroup_status_writes_total", "counter", "1", "Statuses written.")
CERTIFICATE_REQUESTS: Final = Figure(
    "syncgroup_certificate_requests_total", "counter", "1", "Members' certificate requests: `issued` or `denied`.",
    ("answer",),
)  # fmt: skip

# --- the operator itself ----------------------------------------------------------------------------------------------
LEADER: Final = Figure("leader_election_master_status", "gauge", "1", "1 on the replica that acts.")
GROUPS: Final = Figure("syncgroup_groups", "gauge", "groups", "SyncGroups seen.")
GROUPS_OBSERVED: Final = Figure(
    "syncgroup_groups_observed", "gauge", "groups", "SyncGroups that this replica has looked at in all their clusters."
)
WATCHES_LIVE: Final = Figure("syncgroup_watches_live", "gauge", "watches", "Watches of the hub that miss nothing.")
CLUSTER_CONNECTED: Final = Figure(
    "syncgroup_cluster_connected", "gauge", "1", "1 while every watch of the cluster is live.", ("cluster",)
)
QUEUE_DEPTH: Final = Figure("workqueue_depth", "gauge", "groups", "Groups that are due and wait.", ("name",))
QUEUE_OLDEST: Final = Figure(
    "workqueue_longest_waiting_seconds",
    "gauge",
    "seconds",
    "How long the group that waits longest has been due.",
    ("name",),
)
REQUESTS: Final = Figure(
    "rest_client_requests_total", "counter", "1", "Requests to API servers.", ("cluster", "verb", "kind", "code")
)
PASSES: Final = Figure(
    "controller_runtime_reconcile_total",
    "counter",
    "1",
    "Passes over groups by how they ended.",
    ("controller", "result"),
)
PASS_ERRORS: Final = Figure(
    "controller_runtime_reconcile_errors_total", "counter", "1", "Passes over groups that failed.", ("controller",)
)
PASS_SECONDS: Final = Figure(
    "controller_runtime_reconcile_time_seconds", "histogram", "seconds", "How long passes over groups took.",
    ("controller",), _PASS_BOUNDS_S,
)  # fmt: skip

GROUP_FIGURES: Final = (
    GROUP_READY, GROUP_STALLED, GROUP_VERSION, GROUP_LAG, GROUP_SYNC, GROUP_TERM, GROUP_REPLACEMENTS, REGION_DESIRED,
    REGION_READY, REGION_LAG, REGION_RATE, REGION_RTT, REGION_LOSS, REGION_STREAMS, REGION_BUCKET, REGION_UTILISATION,
)  # fmt: skip
FIGURES: Final = (
    *GROUP_FIGURES, REPLACEMENTS, LEASE_EXPIRIES, REPLACEMENT_SECONDS, REPLACEMENT_OWN_SECONDS, REACTION_SECONDS,
    ACTIONS, STATUS_WRITES, SPANS_DROPPED,
    CERTIFICATE_REQUESTS, LEADER, GROUPS, GROUPS_OBSERVED, WATCHES_LIVE, CLUSTER_CONNECTED, QUEUE_DEPTH, QUEUE_OLDEST,
    REQUESTS, PASSES, PASS_ERRORS, PASS_SECONDS,
)  # fmt: skip
