"""What the operator is told from outside, read once from the environment into one frozen object.

The chart writes these variables; on a developer's machine every one has a default that works with a kubeconfig.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from syncgroup_operator.errors import OperatorError

PREFIX: Final = "SYNCGROUP_OPERATOR_"
DEFAULT_IMAGE: Final = "syncgroup/runtime:dev"


class SettingsError(OperatorError):
    """The operator's environment is wrong; only a changed Deployment helps."""

    retry = False


@dataclass(frozen=True)
class ElectionSettings:
    """How the replica that acts is chosen; the usual 15/10/2 seconds of Kubernetes' own controllers."""

    lease_s: float = 15.0
    """A holder that did not renew for so long, as seen by the others, has lost it."""
    renew_s: float = 10.0
    """A holder that could not renew for so long stops acting by itself."""
    retry_s: float = 2.0
    """Between two renewals, and between two looks of the others."""
    poll_s: float = 1.0
    """Between two looks of one that waits: what a released lease costs at most."""


@dataclass(frozen=True)
class OperatorSettings:
    """One replica of the operator."""

    namespace: str = "syncgroup-system"
    """The operator's own: leader lease, kubeconfig Secrets, certificate authorities."""
    identity: str = field(default_factory=socket.gethostname)
    watch_namespaces: tuple[str, ...] = ()
    """Empty: all."""
    kubeconfig: Path | None = None
    """None: the pod's own service account."""
    runtime_image: str = DEFAULT_IMAGE
    library_hash: str = "dev"
    """Names the library's folder in pods; the release writes the hash of what its image holds."""
    health_host: str = "0.0.0.0"  # noqa: S104 the kubelet probes the pod's own address
    health_port: int = 8080
    metrics_port: int = 8081
    workers: int = 32
    """Passes under way; few of them work side by side (`execute.turns`), the others wait for a slow cluster."""
    resync_s: float = 600.0
    requests_per_s: float = 100.0
    burst: int = 400
    collect_every_s: float = 60.0
    check_clusters_s: float = 30.0
    """Between two looks at a cluster's Secret; a new kubeconfig is used after so long at the latest."""
    cluster_lost_s: float = 15.0
    """A cluster that is not connected for so long is lost; a watch that is opened anew is no lost cluster."""
    election: ElectionSettings = field(default_factory=ElectionSettings)
    leader_election: bool = True


def from_environment(environment: Mapping[str, str]) -> OperatorSettings:
    """The settings of this replica; raises SettingsError that names the variable."""
    read = _Reader(environment)
    base, election = OperatorSettings(), ElectionSettings()
    kubeconfig = environment.get("KUBECONFIG", "")
    in_cluster = bool(environment.get("KUBERNETES_SERVICE_HOST"))
    return OperatorSettings(
        namespace=read.text("NAMESPACE", base.namespace),
        identity=read.text("IDENTITY", base.identity),
        watch_namespaces=tuple(name for name in read.text("WATCH_NAMESPACES", "").split(",") if name),
        kubeconfig=None if in_cluster and not kubeconfig else Path(kubeconfig or Path.home() / ".kube" / "config"),
        runtime_image=read.text("RUNTIME_IMAGE", base.runtime_image),
        library_hash=read.text("LIBRARY_HASH", base.library_hash),
        health_host=read.text("HEALTH_HOST", base.health_host),
        health_port=int(read.number("HEALTH_PORT", base.health_port, least=0, most=65535)),
        metrics_port=int(read.number("METRICS_PORT", base.metrics_port, least=0, most=65535)),
        workers=int(read.number("WORKERS", base.workers, least=1, most=256)),
        resync_s=read.number("RESYNC_S", base.resync_s, least=1),
        requests_per_s=read.number("REQUESTS_PER_S", base.requests_per_s, least=1),
        burst=int(read.number("BURST", base.burst, least=1)),
        collect_every_s=read.number("COLLECT_EVERY_S", base.collect_every_s, least=0.1),
        check_clusters_s=read.number("CHECK_CLUSTERS_S", base.check_clusters_s, least=0.1),
        cluster_lost_s=read.number("CLUSTER_LOST_S", base.cluster_lost_s, least=0.1),
        election=ElectionSettings(
            lease_s=read.number("LEASE_S", election.lease_s, least=1),
            renew_s=read.number("RENEW_S", election.renew_s, least=0.5),
            retry_s=read.number("RETRY_S", election.retry_s, least=0.1),
            poll_s=read.number("POLL_S", election.poll_s, least=0.1),
        ),
        leader_election=read.text("LEADER_ELECTION", "true").lower() != "false",
    )


class _Reader:
    """Values of the environment under our prefix."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment

    def text(self, name: str, default: str) -> str:
        return self._environment.get(PREFIX + name) or default

    def number(self, name: str, default: float, *, least: float, most: float = 1e9) -> float:
        raw = self._environment.get(PREFIX + name)
        if not raw:
            return default
        try:
            value = float(raw)
        except ValueError:
            value = -1.0
        if not least <= value <= most:
            raise SettingsError(f"{PREFIX}{name} is {raw!r:.40}; it must be a number from {least:g} to {most:g}")
        return value
