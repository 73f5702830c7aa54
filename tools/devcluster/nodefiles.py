"""Configuration files of a real node: containerd, CNI, kubelet. Pure text from a few facts, then written."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tools.devcluster.components import Plane
from tools.devcluster.config import DNS_DOMAIN, PAUSE_IMAGE
from tools.kube.build import Toolbox

MANIFESTS = Path(__file__).parent / "manifests"


@dataclass(frozen=True, kw_only=True)
class NodeFiles:
    """Where one node keeps what, and how its configuration reads."""

    plane: Plane
    folder: Path
    """On disk: image layers, pod volumes, pod logs."""
    state: Path
    """In memory: sockets (a socket's path must be short) and what a reboot would lose."""
    tools: Toolbox
    cgroup: str | None
    """The node's folder in every cgroup hierarchy, where limits hold; None where there are no limits."""

    @property
    def socket(self) -> Path:
        """containerd's socket."""
        return self.state / "containerd.sock"

    @property
    def containerd_config(self) -> Path:
        """containerd's configuration file."""
        return self.folder / "containerd.toml"

    @property
    def kubelet_root(self) -> Path:
        """The folder `kubelet` under a short name: the kubelet makes sockets in it."""
        return self.state / "kubelet"

    @property
    def kubelet_config(self) -> Path:
        """The kubelet's configuration file."""
        return self.folder / "kubelet.yaml"

    def write(self, *, snapshotter: str) -> None:
        """Write all files and folders."""
        for name in ("cni", "kubelet", "volume-plugins", "static", "pod-logs"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        self.kubelet_root.mkdir(parents=True, exist_ok=True)
        (self.folder / "resolv.conf").write_text("")
        (self.folder / "cni" / "10-devcluster.conflist").write_text(json.dumps(self.cni(), indent=1))
        self.containerd_config.write_text(self.containerd(snapshotter))
        self.kubelet_config.write_text(json.dumps(self.kubelet(), indent=1))

    def cni(self) -> dict[str, Any]:
        """Point-to-point links: also pods of one node talk through the node's routing, where Services are made.

        With a bridge the answer to a Service call between two such pods would bypass it, unless the kernel has
        br_netfilter, which a user cannot load.
        """
        address = {
            "type": "host-local",
            "dataDir": str(self.folder / "cni-addresses"),
            "ranges": [[{"subnet": self.plane.region.pod_cidr}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        }
        return {
            "cniVersion": "1.0.0",
            "name": "devcluster",
            "plugins": [{"type": "ptp", "ipMasq": False, "ipam": address}],
        }

    def containerd(self, snapshotter: str) -> str:
        """containerd without what a user namespace forbids (AppArmor, raising oom scores, NRI)."""
        return f"""\
version = 4
root = '{self.folder / "containerd"}'
state = '{self.state / "containerd"}'
[plugins.'io.containerd.server.v1.grpc']
  address = '{self.socket}'
[plugins.'io.containerd.server.v1.ttrpc']
  address = '{self.socket}.ttrpc'
[plugins.'io.containerd.cri.v1.images']
  snapshotter = '{snapshotter}'
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = '{PAUSE_IMAGE}'
[plugins.'io.containerd.cri.v1.runtime']
  netns_mounts_under_state_dir = true
  disable_apparmor = true
  restrict_oom_score_adj = true
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = 'io.containerd.runc.v2'
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
    BinaryName = '{self.tools["runc-bubble"]}'
    SystemdCgroup = false
[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ['{self.tools.folder("ptp")}']
  conf_dir = '{self.folder / "cni"}'
[plugins.'io.containerd.nri.v1.nri']
  disable = true
"""

    def kubelet(self) -> dict[str, Any]:
        """The kubelet with evictions off: this machine's disk and memory are not the cluster's business."""
        pki, region = self.plane.pki, self.plane.region
        never = {f"{name}.available": "0%" for name in ("memory", "nodefs", "imagefs")}
        settings = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "failCgroupV1": False,
            "cgroupDriver": "cgroupfs",
            "failSwapOn": False,
            "address": region.node_ip,
            "port": 10250,
            "healthzBindAddress": "127.0.0.1",
            "tlsCertFile": str(pki / "kubelet.crt"),
            "tlsPrivateKeyFile": str(pki / "kubelet.key"),
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(pki / "ca.crt")},
            },
            "authorization": {"mode": "Webhook"},
            "containerRuntimeEndpoint": f"unix://{self.socket}",
            "resolvConf": str(self.folder / "resolv.conf"),
            "clusterDNS": [region.node_ip],
            "clusterDomain": DNS_DOMAIN,
            "podLogsDir": str(self.folder / "pod-logs"),
            "volumePluginDir": str(self.folder / "volume-plugins"),
            "staticPodPath": str(self.folder / "static"),
            "makeIPTablesUtilChains": False,
            "evictionHard": never | {"nodefs.inodesFree": "0%", "imagefs.inodesFree": "0%"},
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
            "syncFrequency": "10s",
            "nodeStatusUpdateFrequency": "5s",
            "serializeImagePulls": False,
            "registryPullQPS": 0,
            "eventRecordQPS": 0,
            "kubeAPIQPS": 200,
            "kubeAPIBurst": 400,
        }
        if self.cgroup is not None:
            return settings | {"cgroupRoot": f"/{self.cgroup}", "cgroupsPerQOS": True}
        # On by default from 1.37; before, the kubelet dies of /dev/kmsg, which a user namespace may not read.
        gates = {"KubeletInUserNamespace": True}
        return settings | {"cgroupsPerQOS": False, "enforceNodeAllocatable": [], "featureGates": gates}


def kubelet_command(files: NodeFiles) -> list[str]:
    """The kubelet's command line."""
    region = files.plane.region
    labels = {
        "topology.kubernetes.io/region": region.name,
        "topology.kubernetes.io/zone": f"{region.name}-a",
    }
    return [
        files.tools["kubelet"],
        f"--config={files.kubelet_config}",
        f"--kubeconfig={files.plane.kubeconfig('node')}",
        f"--root-dir={files.kubelet_root}",
        f"--cert-dir={files.folder / 'kubelet-certs'}",
        f"--hostname-override={region.node_name}",
        f"--node-ip={region.node_ip}",
        "--node-labels=" + ",".join(f"{key}={value}" for key, value in labels.items()),
        "--v=1",
    ]


def squash_policy() -> list[dict[str, Any]]:
    """With one mapped id every container runs as the caller: requests for other ids are taken out on admission."""
    return list(yaml.safe_load_all((MANIFESTS / "one-id-policy.yaml").read_text()))
