"""What a sidecar needs to know before it starts, read once into one frozen object.

In a pod it comes from the environment that the operator writes; standalone it comes from `group.toml` (`standalone`).
Standard library only; the plan is not here: it changes while the sidecar runs.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sync_runtime.contract import names
from sync_runtime.errors import SettingsError

MIB = 1 << 20
DEFAULT_RING_BYTES = 256 * MIB
DEFAULT_SPOOL_BYTES = 16 << 30
DEFAULT_GRACE_S, MAX_GRACE_S = 30, 3600
MAX_SIZE_BYTES = 1 << 50
ROLES = ("trainer", "rollout")
GPU_ACCESSES = ("InProcess", "CudaIpc")
MAX_TERM = 2**53 - 1
"""As JSON can carry it."""


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
    node: str = ""
    ring_bytes: int = DEFAULT_RING_BYTES
    spool_bytes: int = DEFAULT_SPOOL_BYTES
    plan_config_map: str = ""
    """In a pod: where the plan comes from. Then plan and certificate are fetched while the sidecar runs."""
    trust_dir: Path = Path(names.TRUST_DIR)
    token_dir: Path = Path(names.TOKEN_DIR)
    term: int = 0
    """Of a trainer in a pod: the term that the pod was created for."""
    gpu_access: str = "InProcess"
    """`CudaIpc`: the sidecar runs a GPU worker beside itself."""
    store_secret_dir: Path | None = None
    """Credentials of the object store, a file each; None: the pod's own cloud identity, or none needed."""
    served_folder: Path | None = None
    """Of a rollout: where a checkpoint folder is kept level with the group, for programs that read nothing else."""
    served_base: Path | None = None
    """The checkpoint folder that it is made from."""
    served_grace_s: int = DEFAULT_GRACE_S
    """How long a version that was replaced there is left to readers that are between two files."""
    worker_command: tuple[str, ...] = (sys.executable, "-P", "-m", "sync_runtime.gpu_worker")
    """With `CudaIpc`: the worker's program; the CUDA variant of the runtime's image has torch in the same Python."""

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise SettingsError(f"the role is {self.role!r}; it must be trainer or rollout")
        if self.gpu_access not in GPU_ACCESSES:
            raise SettingsError(f"gpuAccess is {self.gpu_access!r:.40}; it must be one of {', '.join(GPU_ACCESSES)}")
        if (self.served_folder is None) != (self.served_base is None):
            raise SettingsError(
                f"a served folder needs both {names.ENV_SERVED_FOLDER}, where versions are served, and "
                f"{names.ENV_SERVED_BASE}, the checkpoint folder that it is made from"
            )
        if self.served_folder is not None and self.role != "rollout":
            raise SettingsError("rollouts serve a checkpoint folder; a trainer publishes from its own process")

    @property
    def worker_socket(self) -> Path:
        """Where the GPU worker listens: in the folder that the user's process shares with the sidecar."""
        return Path(names.gpu_worker_socket(str(self.socket_path)))

    @property
    def plan_cause_path(self) -> Path:
        """Beside the plan: the operator's span that made it, as a traceparent; only for traces, often not there."""
        return self.plan_path.with_name(self.plan_path.name + ".cause")

    @property
    def in_pod(self) -> bool:
        """Whether an operator looks after this member."""
        return self.lease_dir is None


def parse_address(text: str) -> Address:
    """`host:port`, `[v6]:port`; port 0 takes a free one."""
    host, separator, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not separator or not host or not port.isdecimal() or int(port) > 65535:
        raise SettingsError(f"{text!r} is not an address such as 127.0.0.1:7443")
    return Address(host, int(port))


def is_address(text: str) -> bool:
    """Whether `parse_address` takes it."""
    try:
        parse_address(text)
    except SettingsError:
        return False
    return True


def everywhere(port: int) -> Address:
    """All addresses of this machine: of both families where there are both."""
    return Address("::" if socket.has_dualstack_ipv6() else "0.0.0.0", port)  # noqa: S104 a pod is dialled from outside


def parse_term(text: str) -> int:
    """A term as the operator writes it."""
    if not text.isdecimal() or len(text) > len(str(MAX_TERM)) or not 0 < int(text) <= MAX_TERM:
        raise SettingsError(f"the term {text!r:.40} of this trainer must be a number from 1 on; the operator sets it")
    return int(text)


def parse_grace_s(text: str) -> int:
    """How long a served version that was replaced is left to readers, as the operator writes it."""
    if not text.isdecimal() or int(text[:8]) > MAX_GRACE_S:
        raise SettingsError(
            f"{names.ENV_SERVED_GRACE} is {text!r:.40}; it must be a number of seconds up to {MAX_GRACE_S}"
        )
    return int(text)


def from_environment(environment: Mapping[str, str]) -> SidecarSettings:
    """The settings of a sidecar in a pod."""

    def needed(name: str) -> str:
        value = environment.get(name, "")
        if not value:
            raise SettingsError(f"the environment variable {name} is not set; the operator sets it in a pod")
        return value

    def folder(name: str, usual: str) -> Path:
        return Path(environment.get(name) or usual)

    def optional_folder(name: str) -> Path | None:
        return Path(environment[name]) if environment.get(name) else None

    def size_bytes(name: str, usual: int) -> int:
        text = environment.get(name) or str(usual)
        if not text.isdecimal() or not 0 < int(text[:20]) <= MAX_SIZE_BYTES:
            raise SettingsError(f"{name} is {text!r:.40}; it must be a number of bytes")
        return int(text)

    def address(name: str, port: int) -> Address:
        text = environment.get(name, "")
        return parse_address(text) if text else everywhere(port)

    group = needed(names.ENV_GROUP)
    is_trainer = needed(names.ENV_ROLE) == names.TRAINER_ROLE
    return SidecarSettings(
        group=group,
        group_namespace=needed(names.ENV_GROUP_NAMESPACE),
        group_uid=needed(names.ENV_GROUP_UID),
        member=needed(names.ENV_MEMBER),
        role="trainer" if is_trainer else "rollout",
        cluster=needed(names.ENV_CLUSTER),
        region=needed(names.ENV_REGION),
        plan_path=Path(needed(names.ENV_PLAN)),
        identity_dir=folder(names.ENV_IDENTITY_DIR, names.IDENTITY_DIR),
        spool_dir=folder(names.ENV_SPOOL_DIR, names.SPOOL_DIR),
        socket_path=folder(names.ENV_SOCKET, names.SOCKET_PATH),
        listen=address(names.ENV_LISTEN, names.DATA_PORT),
        control=address(names.ENV_CONTROL, names.CONTROL_PORT),
        lease_name=needed(names.ENV_LEASE),
        pod_namespace=needed(names.ENV_POD_NAMESPACE),
        pod_name=needed(names.ENV_POD_NAME),
        pod_uid=needed(names.ENV_POD_UID),
        node=environment.get(names.ENV_NODE, ""),
        ring_bytes=size_bytes(names.ENV_RING_BYTES, DEFAULT_RING_BYTES),
        spool_bytes=size_bytes(names.ENV_SPOOL_BYTES, DEFAULT_SPOOL_BYTES),
        plan_config_map=needed(names.ENV_PLAN_CONFIG_MAP),
        trust_dir=folder(names.ENV_TRUST_DIR, names.TRUST_DIR),
        token_dir=folder(names.ENV_TOKEN_DIR, names.TOKEN_DIR),
        term=parse_term(needed(names.ENV_TERM)) if is_trainer else 0,
        gpu_access=environment.get(names.ENV_GPU_ACCESS) or "InProcess",
        store_secret_dir=optional_folder(names.ENV_STORE_SECRET_DIR),
        served_folder=optional_folder(names.ENV_SERVED_FOLDER),
        served_base=optional_folder(names.ENV_SERVED_BASE),
        served_grace_s=parse_grace_s(environment.get(names.ENV_SERVED_GRACE) or str(DEFAULT_GRACE_S)),
    )
