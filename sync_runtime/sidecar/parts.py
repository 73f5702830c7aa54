"""Small parts of a sidecar that its settings decide: which lease it renews, and how it calls itself in traces."""

from __future__ import annotations

import importlib.metadata
import time

from sync_runtime.contract import names
from sync_runtime.membership.documents import LeaseName, pod_owner
from sync_runtime.membership.file import FileLease
from sync_runtime.membership.keeper import Lease
from sync_runtime.settings import SidecarSettings
from sync_runtime.telemetry.surface import Origin


def lease_of(settings: SidecarSettings) -> Lease:
    """A file standalone, a Lease of Kubernetes in a pod."""
    if settings.lease_dir is not None:
        return FileLease(settings.lease_dir, LeaseName(settings.lease_name, f"{settings.member}-{time.time_ns()}"))
    # A heavy client, in pods only.
    from sync_runtime.membership.api import ClusterApi  # noqa: PLC0415
    from sync_runtime.membership.lease import KubernetesLease  # noqa: PLC0415

    name = LeaseName(
        settings.lease_name,
        settings.pod_uid,
        settings.pod_namespace,
        labels=names.group_labels(names.GroupKey(settings.group_namespace, settings.group), settings.group_uid),
        owner=pod_owner(settings.pod_name, settings.pod_uid),
    )
    return KubernetesLease(name, ClusterApi(token_dir=settings.token_dir))


def origin_of(settings: SidecarSettings, runtime_version: str) -> Origin:
    """What every span and metric carries."""
    return Origin(
        group=settings.group,
        group_uid=settings.group_uid,
        cluster=settings.cluster,
        region=settings.region,
        member=settings.member,
        role=settings.role,
        runtime_version=runtime_version,
        group_namespace=settings.group_namespace,
        pod_namespace=settings.pod_namespace,
        pod_name=settings.pod_name,
        pod_uid=settings.pod_uid,
        node=settings.node,
    )


def release() -> str:
    """The installed release."""
    try:
        return importlib.metadata.version("syncgroup")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
