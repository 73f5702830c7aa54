"""The command line of every control-plane program. Pure: (region, ports, paths) -> arguments."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tools.devcluster.config import Region
from tools.kube.build import Toolbox

AUDIT_POLICY = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  users: ["system:kube-scheduler", "system:kube-controller-manager", "system:apiserver"]
- level: None
  resources: [{group: coordination.k8s.io, resources: [leases]}]
- level: Metadata
"""


@dataclass(frozen=True, kw_only=True)
class Plane:
    """Where one region's control plane listens and keeps its files."""

    region: Region
    folder: Path
    logs: Path
    bind: str
    """Address of the API server's listener."""
    reach: str
    """Address under which our own programs reach it."""
    advertise: str
    api_port: int
    etcd_port: int
    etcd_peer_port: int

    @property
    def pki(self) -> Path:
        """Keys and certificates."""
        return self.folder / "pki"

    @property
    def server(self) -> str:
        """The API server as the region's own programs reach it."""
        return f"https://{self.reach}:{self.api_port}"

    def kubeconfig(self, user: str) -> Path:
        """The kubeconfig of one component."""
        return self.folder / "kubeconfigs" / user


def etcd(plane: Plane, tools: Toolbox) -> list[str]:
    """A single-member etcd. Nothing here must survive a power cut, so it never waits for the disk."""
    client, peer = f"http://127.0.0.1:{plane.etcd_port}", f"http://127.0.0.1:{plane.etcd_peer_port}"
    return [
        tools["etcd"],
        "--name=devcluster",
        f"--data-dir={plane.folder / 'etcd'}",
        "--unsafe-no-fsync",
        "--log-level=warn",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=devcluster={peer}",
    ]


def apiserver(plane: Plane, tools: Toolbox) -> list[str]:
    """The API server with the checks of a real one: Node and RBAC, NodeRestriction, audit."""
    pki = plane.pki
    command = [
        tools["kube-apiserver"],
        f"--etcd-servers=http://127.0.0.1:{plane.etcd_port}",
        f"--bind-address={plane.bind}",
        f"--secure-port={plane.api_port}",
        f"--advertise-address={plane.advertise}",
        f"--tls-cert-file={pki / 'apiserver.crt'}",
        f"--tls-private-key-file={pki / 'apiserver.key'}",
        f"--client-ca-file={pki / 'ca.crt'}",
        f"--kubelet-certificate-authority={pki / 'ca.crt'}",
        f"--kubelet-client-certificate={pki / 'apiserver-kubelet.crt'}",
        f"--kubelet-client-key={pki / 'apiserver-kubelet.key'}",
        "--kubelet-preferred-address-types=InternalIP",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-key-file={pki / 'service-accounts.pub'}",
        f"--service-account-signing-key-file={pki / 'service-accounts.key'}",
        f"--service-cluster-ip-range={plane.region.service_cidr}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        f"--cert-dir={plane.folder / 'apiserver-certs'}",
        f"--audit-policy-file={plane.folder / 'audit-policy.yaml'}",
        f"--audit-log-path={plane.logs / (plane.region.name + '-audit.log')}",
        "--audit-log-maxsize=50",
        "--audit-log-maxbackup=1",
    ]
    if plane.advertise.startswith("127."):
        # A loopback address may not become an endpoint of the `kubernetes` Service; without this it exits.
        command.append("--endpoint-reconciler-type=none")
    return command


def controller_manager(plane: Plane, tools: Toolbox) -> list[str]:
    """All controllers. The request budget is raised: with the default a namespace takes seconds to appear."""
    pki = plane.pki
    return [
        tools["kube-controller-manager"],
        f"--kubeconfig={plane.kubeconfig('controller-manager')}",
        "--secure-port=0",
        "--leader-elect=false",
        "--use-service-account-credentials=true",
        "--kube-api-qps=500",
        "--kube-api-burst=1000",
        f"--service-account-private-key-file={pki / 'service-accounts.key'}",
        f"--root-ca-file={pki / 'ca.crt'}",
        f"--cluster-signing-cert-file={pki / 'ca.crt'}",
        f"--cluster-signing-key-file={pki / 'ca.key'}",
        # kwok's invented nodes would use up the region's pod addresses, and the one real node knows its own.
        "--allocate-node-cidrs=false",
        "--node-monitor-grace-period=40s",
        f"--service-cluster-ip-range={plane.region.service_cidr}",
    ]


def scheduler(plane: Plane, tools: Toolbox) -> list[str]:
    """The stock scheduler."""
    return [
        tools["kube-scheduler"],
        f"--kubeconfig={plane.kubeconfig('scheduler')}",
        "--secure-port=0",
        "--leader-elect=false",
        "--kube-api-qps=500",
        "--kube-api-burst=1000",
    ]


def kwok(plane: Plane, tools: Toolbox, stages: Path) -> list[str]:
    """kwok, acting only for nodes that carry its annotation, so that real nodes stay real."""
    return [
        tools["kwok"],
        f"--kubeconfig={plane.kubeconfig('admin')}",
        f"--config={stages}",
        "--manage-all-nodes=false",
        "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
        "--node-lease-duration-seconds=40",
        f"--cidr={plane.region.kwok_cidr}",
        "--node-ip=127.0.0.1",
        "--server-address=127.0.0.1:0",
    ]


def coredns(plane: Plane, tools: Toolbox) -> list[str]:
    """Cluster DNS as a plain process on the node's address."""
    return [tools["coredns"], "-conf", str(plane.folder / "Corefile")]


def corefile(plane: Plane) -> str:
    """CoreDNS answers for the cluster's own names only: there is no upstream in the bubble."""
    return (
        ".:53 {\n"
        f"  bind {plane.region.node_ip}\n"
        "  errors\n"
        "  kubernetes cluster.local in-addr.arpa {\n"
        f"    kubeconfig {plane.kubeconfig('admin')}\n"
        "  }\n"
        "}\n"
    )


def kube_proxy(plane: Plane, tools: Toolbox) -> list[str]:
    """Services through nftables; conntrack limits are the host's and stay untouched."""
    return [
        tools["kube-proxy"],
        f"--kubeconfig={plane.kubeconfig('proxy')}",
        f"--hostname-override={plane.region.node_name}",
        "--proxy-mode=nftables",
        f"--cluster-cidr={plane.region.pod_cidr}",
        "--conntrack-max-per-core=0",
        "--conntrack-tcp-timeout-established=0",
        "--conntrack-tcp-timeout-close-wait=0",
        "--healthz-bind-address=127.0.0.1:10256",
        "--metrics-bind-address=127.0.0.1:10249",
    ]
