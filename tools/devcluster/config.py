"""What a dev cluster consists of: regions, addresses, folders. Pure data; starts and reads nothing.

Every address is a function of the region's index, so that a person can read a packet trace without a table.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from tools.errors import ClusterError

REGION_NAMES = ("us-east", "eu-west", "ap-south", "sa-east", "us-west", "eu-north", "ap-east", "af-south")
MAX_REGIONS = 32
RESERVED = {"logs", "lock", "pid", "kubectl-home"}
"""Names that the cluster's folder uses itself, beside one folder per region."""
API_PORT = 6443
DNS_DOMAIN = "cluster.local"
PAUSE_IMAGE = "syncgroup.local/pause:1"


class Level(StrEnum):
    """How real the cluster is; each level contains the one before."""

    PLANES = "planes"
    """Control planes on loopback. Works everywhere."""
    NODES = "nodes"
    """Real nodes inside one set of namespaces (the bubble). Needs user namespaces, or root."""
    LIMITS = "limits"
    """Real nodes whose CPU and memory limits hold. Needs root and writable cgroups."""


@dataclass(frozen=True)
class Region:
    """One region: one Kubernetes cluster."""

    name: str
    index: int
    """1, 2, …: the digit that appears in the region's addresses."""

    @property
    def node_name(self) -> str:
        """The one real node of the region."""
        return f"{self.name}-node"

    @property
    def node_ip(self) -> str:
        """Address of node and API server as the other regions see it."""
        return f"10.231.0.{10 + self.index}"

    @property
    def management_ip(self) -> str:
        """Address that only the dev cluster itself uses; never shaped."""
        return f"10.230.0.{10 + self.index}"

    @property
    def pod_cidr(self) -> str:
        """Addresses of pods."""
        return f"10.232.{self.index}.0/24"

    @property
    def load_balancer_cidr(self) -> str:
        """Addresses given to Services of type LoadBalancer; reachable from every region."""
        return f"10.233.{self.index}.0/24"

    @property
    def kwok_cidr(self) -> str:
        """Addresses that kwok invents for its pods; nothing answers there."""
        return f"10.{140 + self.index}.0.0/16"

    @property
    def service_cidr(self) -> str:
        """Addresses of ClusterIP Services; the first is the API server's."""
        return f"10.{100 + self.index}.0.0/16"

    @property
    def service_ip(self) -> str:
        """The ClusterIP of the `kubernetes` Service."""
        return f"10.{100 + self.index}.0.1"

    @property
    def mac(self) -> str:
        """Hardware address of the region's WAN interface, fixed so that no ARP is needed."""
        return f"02:53:47:00:01:{self.index:02x}"

    @property
    def wan_prefixes(self) -> tuple[str, ...]:
        """What the other regions reach in this one."""
        return (f"{self.node_ip}/32", self.pod_cidr, self.load_balancer_cidr)


@dataclass(frozen=True, kw_only=True)
class ClusterConfig:
    """All that `up` was asked for."""

    directory: Path
    level: Level
    regions: tuple[Region, ...]
    kube: str = "default"
    kwok_nodes: int = 0
    links: tuple[tuple[str, str, str], ...] = ()
    """(region, region, shape) for both directions, shapes in the link emulator's short form."""
    images: tuple[str, ...] = ()
    """OCI archives that every node imports."""

    def __post_init__(self) -> None:
        """Refuse what no cluster can be."""
        if self.kwok_nodes < 0:
            raise ClusterError(f"There can be 0 or more kwok nodes per region, not {self.kwok_nodes}.")
        if self.links and self.level is Level.PLANES:
            raise ClusterError("Links exist at the levels nodes and limits only; choose one of these, or give no link.")

    def region(self, name: str) -> Region:
        """The region called `name`."""
        for region in self.regions:
            if region.name == name:
                return region
        known = ", ".join(region.name for region in self.regions)
        raise ClusterError(f"There is no region {name!r} here; the regions are {known}.")

    def folder(self, region: Region) -> Path:
        """The region's own files."""
        return self.directory / region.name

    def cgroup(self, region: Region) -> str:
        """The node's cgroup folder at the level `limits`; clusters side by side must not share one."""
        return f"devcluster-{hashlib.sha256(bytes(self.directory)).hexdigest()[:8]}-{region.name}"

    def with_images(self, archives: tuple[str, ...]) -> ClusterConfig:
        """The same cluster, whose nodes import `archives` too."""
        return replace(self, images=(*archives, *self.images))

    @property
    def logs(self) -> Path:
        """All logs of all regions, in one folder."""
        return self.directory / "logs"

    def to_json(self) -> str:
        """As text, for the process that runs the cluster."""
        value = asdict(self) | {"directory": str(self.directory), "level": self.level.value}
        return json.dumps(value)

    @classmethod
    def from_json(cls, text: str) -> ClusterConfig:
        """The inverse of `to_json`."""
        raw: dict[str, Any] = json.loads(text)
        return cls(
            directory=Path(raw["directory"]),
            level=Level(raw["level"]),
            regions=tuple(Region(**entry) for entry in raw["regions"]),
            kube=raw["kube"],
            kwok_nodes=raw["kwok_nodes"],
            links=tuple((a, b, shape) for a, b, shape in raw["links"]),
            images=tuple(raw["images"]),
        )


def parse_regions(text: str) -> tuple[Region, ...]:
    """`3`, or `us-east,eu-west`: a number takes the usual names."""
    if re.fullmatch(r"[0-9]{1,9}", text):
        count = int(text)
        spare = (f"region-{number}" for number in range(len(REGION_NAMES) + 1, MAX_REGIONS + 1))
        names = [*REGION_NAMES, *spare][:count]
        if not 1 <= count <= MAX_REGIONS:
            raise ClusterError(f"A dev cluster has 1 to {MAX_REGIONS} regions, not {count}.")
    else:
        names = text.split(",")
        if len(names) > MAX_REGIONS or len(set(names)) != len(names):
            raise ClusterError(f"Region names must differ, and there can be {MAX_REGIONS} at most.")
    for name in names:
        if not re.fullmatch(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?", name):
            raise ClusterError(f"{name!r} is not a region name: lower-case letters, digits and dashes, 40 at most.")
        if name in RESERVED:
            raise ClusterError(f"A region cannot be called {name}: the cluster's folder uses that name itself.")
    return tuple(Region(name, number) for number, name in enumerate(names, 1))


def parse_link(text: str, regions: tuple[Region, ...]) -> tuple[str, str, str]:
    """`us-east:eu-west=100ms/500M/0.1%` -> (us-east, eu-west, shape); `*` for the names means every pair."""
    match = re.fullmatch(r"([^:=]+):([^:=]+)=(.+)", text)
    if match is None:
        raise ClusterError(
            f"{text!r} is not a link: write REGION:REGION=RTT/RATE/LOSS, as in us-east:eu-west=100ms/500M/0.1%."
        )
    known = {region.name for region in regions} | {"*"}
    for name in (match[1], match[2]):
        if name not in known:
            raise ClusterError(f"The link {text!r} names {name!r}, which is not a region here.")
    if match[1] == match[2] != "*":
        raise ClusterError(f"The link {text!r} leads from a region to itself; name two regions.")
    return match[1], match[2], match[3]
