"""Every CamelCase word that conditions, events and replacements use: one list, so that alerts and docs can rely on it.

Pure constants. A reason is never built from text that comes from elsewhere, except a container's own waiting reason.
"""

from __future__ import annotations

from typing import Final

# --- condition types -------------------------------------------------------------------------------------------------
READY: Final = "Ready"
RECONCILING: Final = "Reconciling"
STALLED: Final = "Stalled"
TRAINER_READY: Final = "TrainerReady"
ROLLOUTS_READY: Final = "RolloutsReady"
LINKS_HEALTHY: Final = "LinksHealthy"
CLUSTERS_REACHABLE: Final = "ClustersReachable"
IDENTITY_VALID: Final = "IdentityValid"
SUSPENDED: Final = "Suspended"
CONNECTED: Final = "Connected"
"""Of a SyncCluster."""

# --- all is well, or will be -----------------------------------------------------------------------------------------
ALL_READY: Final = "AllReady"
SERVING: Final = "Serving"
PROGRESSING: Final = "Progressing"
STARTING: Final = "Starting"
SCALING: Final = "Scaling"
ROLLING_OUT: Final = "RollingOut"
REPLACING: Final = "Replacing"
DELETING: Final = "Deleting"
MEASURED: Final = "Measured"
NOT_MEASURED: Final = "NotMeasured"
DONE: Final = "Done"
NOTHING_TO_DO: Final = "NothingToDo"

# --- why a group cannot go on until somebody changes something ------------------------------------------------------
INVALID_SPEC: Final = "InvalidSpec"
CLUSTER_NOT_FOUND: Final = "ClusterNotFound"
NAMESPACE_NOT_ALLOWED: Final = "NamespaceNotAllowed"
SERVICE_ACCOUNT_NOT_ALLOWED: Final = "ServiceAccountNotAllowed"
CONTAINER_NOT_FOUND: Final = "ContainerNotFound"
TEMPLATE_CONFLICT: Final = "TemplateConflict"
TEMPLATE_REFUSED: Final = "TemplateRefused"
NO_DEVICE_SHARING: Final = "NoDeviceSharing"
SECRET_NOT_FOUND: Final = "SecretNotFound"  # noqa: S105 a reason, no secret
SECRET_UNUSABLE: Final = "SecretUnusable"  # noqa: S105 a reason, no secret
DENIED: Final = "Denied"
NAME_TAKEN: Final = "NameTaken"
MANAGED_ELSEWHERE: Final = "ManagedElsewhere"
STATE_UNREADABLE: Final = "StateUnreadable"

# --- clusters --------------------------------------------------------------------------------------------------------
CONNECTED_REASON: Final = "Connected"
UNREACHABLE: Final = "Unreachable"
KUBECONFIG_REFUSED: Final = "KubeconfigRefused"
KUBECONFIG_MISSING: Final = "KubeconfigMissing"
UNAUTHORIZED: Final = "Unauthorized"

# --- pods and members ------------------------------------------------------------------------------------------------
POD_PENDING: Final = "PodPending"
UNSCHEDULABLE: Final = "Unschedulable"
POD_NOT_READY: Final = "PodNotReady"
TRAINER_DOWN: Final = "TrainerDown"
TRAINER_UNREACHED: Final = "TrainerAddressUnknown"
REGIONS_STALE: Final = "RegionsStale"
MEMBER_POISONED: Final = "MemberPoisoned"

# --- the object store, mostly in members' own words -------------------------------------------------------------------
STORE_UNPROVED: Final = "StoreUnproved"
STORE_AWAY: Final = "StoreUnavailable"
STORE_DENIED: Final = "StoreDenied"
STORE_CLOCK: Final = "StoreClock"
STORE_UNFIT: Final = "StoreUnfit"
STORE_FOREIGN: Final = "StoreForeign"
STORE_AHEAD: Final = "StoreAhead"
STORE_DAMAGED: Final = "StoreDamaged"
STORE_MISSING: Final = "StoreMissing"

# --- replacements ----------------------------------------------------------------------------------------------------
LEASE_EXPIRED: Final = "LeaseExpired"
NEVER_REPORTED: Final = "NeverReported"
POD_FAILED: Final = "PodFailed"
POD_DELETED: Final = "PodDeleted"
NODE_LOST: Final = "NodeLost"
NO_CAPACITY: Final = "NoCapacity"
REGION_LOST: Final = "RegionLost"
CLUSTER_LOST: Final = "ClusterLost"
FENCED: Final = "Fenced"
SLOT_TAKEN: Final = "SlotTaken"
TEMPLATE_CHANGED: Final = "TemplateChanged"
SCALED_DOWN: Final = "ScaledDown"
REQUESTED: Final = "Requested"
DAMPED: Final = "ReplacementsDamped"

# --- identity --------------------------------------------------------------------------------------------------------
CERTIFICATE_DENIED: Final = "CertificateDenied"
CERTIFICATE_ISSUED: Final = "CertificateIssued"
AUTHORITY_EXPIRING: Final = "AuthorityExpiring"
AUTHORITY_ROTATING: Final = "AuthorityRotating"
AUTHORITY_EXPIRED: Final = "AuthorityExpired"
CERTIFICATE_EXPIRING: Final = "CertificateExpiring"
VALID: Final = "Valid"
