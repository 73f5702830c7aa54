"""`tools.toml` as data: which programs there are, in which version, built how. Pure; runs nothing."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools.errors import BuildError

HERE = Path(__file__).parent
DEFAULT_KUBE = "default"

# What each part of the dev cluster needs. Order is build order: control planes first.
SETS: Mapping[str, tuple[str, ...]] = {
    "planes": ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"),
    "kwok": ("kwok",),
    "nodes": (
        "kubelet",
        "kube-proxy",
        "containerd",
        "containerd-shim-runc-v2",
        "ctr",
        "runc",
        "runc-bubble",
        "pause",
        "ptp",
        "loopback",
        "host-local",
        "portmap",
        "coredns",
    ),
    "chart": ("helm",),
    "s3": ("versitygw",),
}


@dataclass(frozen=True, kw_only=True)
class Family:
    """One Go module, pinned, and the programs that are built from it."""

    name: str
    module: str
    version: str
    binaries: Mapping[str, str]
    """Program name -> package inside the module."""
    staging: bool = False
    aliases: tuple[str, ...] = ()
    cgo: bool = False
    tags: tuple[str, ...] = ()
    seccomp_tags: tuple[str, ...] = ()
    """Added where the headers of libseccomp are on the machine."""
    ldflags: str = ""
    stamps: Mapping[str, str] = field(default_factory=dict)
    own_sums: bool = False
    """The module's own go.sum, which its own hash covers, vouches for what it needs."""
    local: bool = False
    """Our own source in modules/<name>, no download."""

    @property
    def folder(self) -> Path:
        """Where go.mod and go.sum of this family stand."""
        return HERE / "modules" / self.name

    def package(self, binary: str) -> str:
        """The Go package that `binary` is built from."""
        inner = self.binaries[binary]
        if self.local:
            return "./" + inner
        return self.module if inner == "." else f"{self.module}/{inner}"

    def link_flags(self) -> str:
        """Flags for the linker: stripped, stamped with the version a user would see from a release."""
        stamps = {key: value.format(version=self.version, bare=self.version[1:]) for key, value in self.stamps.items()}
        if self.staging:
            stamps |= kubernetes_stamps(self.version)
        parts = ["-s", "-w", *(f"-X {key}={value}" for key, value in stamps.items())]
        return " ".join([*parts, self.ldflags]).strip()

    def fingerprint(self) -> str:
        """Changes whenever a rebuild could give other bytes: sources, pins and flags."""
        digest = hashlib.sha256(repr((self.link_flags(), self.tags, self.cgo, sorted(self.binaries.items()))).encode())
        for path in sorted(self.folder.rglob("*")):
            if path.is_file():
                digest.update(path.relative_to(self.folder).as_posix().encode() + b"\0" + path.read_bytes())
        return digest.hexdigest()[:10]


def kubernetes_stamps(version: str) -> dict[str, str]:
    """Version variables of a Kubernetes release; without them `/version` is empty and Helm is misled."""
    major, minor, _ = version[1:].split(".", 2)
    values = {
        "gitVersion": version,
        "gitMajor": major,
        "gitMinor": minor,
        "gitCommit": "module",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
    }
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    return {f"{package}.{key}": value for package in packages for key, value in values.items()}


@dataclass(frozen=True)
class Catalog:
    """All families, with look-ups by program and by Kubernetes release."""

    go_minimum: str
    go_wheel: str
    families: tuple[Family, ...]

    def kubernetes(self, release: str = DEFAULT_KUBE) -> Family:
        """The Kubernetes family for what a person wrote as KUBE=…"""
        for family in self.families:
            if release in family.aliases:
                return family
        known = ", ".join(alias for family in self.families for alias in family.aliases)
        raise BuildError(f"Kubernetes {release} is not in tools/kube/tools.toml; known are {known}.")

    def owner(self, binary: str, release: str = DEFAULT_KUBE) -> Family:
        """The family that builds `binary`."""
        kube = self.kubernetes(release)
        for family in (kube, *(f for f in self.families if not f.staging)):
            if binary in family.binaries:
                return family
        raise BuildError(f"No family in tools/kube/tools.toml builds {binary!r}.")

    def family(self, name: str) -> Family:
        """The family called `name`."""
        for family in self.families:
            if family.name == name:
                return family
        raise BuildError(f"No family called {name!r} in tools/kube/tools.toml.")

    def expand(self, names: Iterable[str]) -> list[str]:
        """Sets and program names -> program names, in build order, each once."""
        wanted = [binary for name in names for binary in SETS.get(name, (name,))]
        return list(dict.fromkeys(wanted))


def _family(name: str, entry: Mapping[str, Any]) -> Family:
    local = bool(entry.get("local"))
    return Family(
        name=name,
        module=f"syncgroup.dev/tools/{name}" if local else entry["module"],
        version="v0.0.0" if local else entry["version"],
        binaries=dict(entry["binaries"]),
        staging=bool(entry.get("staging")),
        aliases=tuple(entry.get("aliases", ())),
        cgo=bool(entry.get("cgo")),
        tags=tuple(entry.get("tags", ())),
        seccomp_tags=tuple(entry.get("seccomp_tags", ())),
        ldflags=entry.get("ldflags", ""),
        stamps=dict(entry.get("stamps", {})),
        own_sums=bool(entry.get("own_sums")),
        local=local,
    )


def load(path: Path = HERE / "tools.toml") -> Catalog:
    """Read the catalog."""
    raw = tomllib.loads(path.read_text())
    families = tuple(_family(name, entry) for name, entry in raw["family"].items())
    return Catalog(go_minimum=raw["go"]["minimum"], go_wheel=raw["go"]["wheel"], families=families)
