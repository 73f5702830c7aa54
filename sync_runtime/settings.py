"""What a sidecar needs to know before it starts, read once into one frozen object.

In a pod it comes from the environment that the operator writes; standalone it comes from `group.toml` (`standalone`).
Standard library only; the plan is not here: it changes while the sidecar runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sync_runtime.contract import names
from sync_runtime.errors import SettingsError

MIB = 1 << 20
DEFAULT_RING_BYTES = 256 * MIB
DEFAULT_SPOOL_BYTES = 16 << 30
ROLES = ("trainer", "rollout")


@dataclass(frozen=True)
class Address:
    """Where to listen."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class SidecarSettings:
    """One sidecar."""

    group: str
    group_namespace: str
    group_uid: str
    member: str
    role: str
    """`trainer` or `rollout`."""
    cluster: str
    region: str
    plan_path: Path
    identity_dir: Path
    spool_dir: Path
    socket_path: Path
    listen: Address
    control: Address
    lease_dir: Path | None = None
    """Standalone: the folder of the file lease. In a pod None: a Kubernetes Lease."""
    lease_name: str = ""
    pod_namespace: str = ""
    pod_name: str = ""
    pod_uid: str = ""
    ring_bytes: int = DEFAULT_RING_BYTES
    spool_bytes: int = DEFAULT_SPOOL_BYTES

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise SettingsError(f"the role is {self.role!r}; it must be trainer or rollout")


def parse_address(text: str) -> Address:
    """`host:port`, `[v6]:port`; port 0 takes a free one."""
    host, separator, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not separator or not host or not port.isdecimal() or int(port) > 65535:
        raise SettingsError(f"{text!r} is not an address such as 127.0.0.1:7443")
    return Address(host, int(port))


def from_environment(environment: Mapping[str, str]) -> SidecarSettings:
    """The settings of a sidecar in a pod."""

    def needed(name: str) -> str:
        value = environment.get(name, "")
        if not value:
            raise SettingsError(f"the environment variable {name} is not set; the operator sets it in a pod")
        return value

    return SidecarSettings(
        group=needed(names.ENV_GROUP),
        group_namespace=needed(names.ENV_GROUP_NAMESPACE),
        group_uid=needed(names.ENV_GROUP_UID),
        member=needed(names.ENV_MEMBER),
        role="trainer" if needed(names.ENV_ROLE) == names.TRAINER_ROLE else "rollout",
        cluster=needed(names.ENV_CLUSTER),
        region=needed(names.ENV_REGION),
        plan_path=Path(needed(names.ENV_PLAN)),
        identity_dir=Path(names.IDENTITY_DIR),
        spool_dir=Path(environment.get(names.ENV_SPOOL_DIR) or names.SPOOL_DIR),
        socket_path=Path(environment.get(names.ENV_SOCKET) or names.SOCKET_PATH),
        listen=Address("::", names.DATA_PORT),
        control=Address("::", names.CONTROL_PORT),
        lease_name=needed(names.ENV_LEASE),
        pod_namespace=needed(names.ENV_POD_NAMESPACE),
        pod_name=needed(names.ENV_POD_NAME),
        pod_uid=needed(names.ENV_POD_UID),
    )
