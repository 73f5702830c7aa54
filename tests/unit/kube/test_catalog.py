"""The catalog: what `tools.toml` says, and what follows from it."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from tools.errors import BuildError
from tools.kube import catalog
from tools.kube.catalog import SETS, Catalog, Family

KNOWN = catalog.load()
FAMILY_NAMES = [family.name for family in KNOWN.families]


@pytest.mark.parametrize("name", FAMILY_NAMES)
def test_every_family_names_a_module_a_version_and_its_programs(name: str) -> None:
    family = KNOWN.family(name)
    assert family.binaries
    assert family.version.startswith("v")
    assert "." in family.module.split("/")[0]
    for binary in family.binaries:
        assert family.package(binary).startswith(("./", family.module))


@pytest.mark.parametrize("release", ["default", "1.37", "1.36"])
@pytest.mark.parametrize("binary", [name for names in SETS.values() for name in names])
def test_each_program_of_a_set_has_one_owner(binary: str, release: str) -> None:
    owners = [family for family in KNOWN.families if binary in family.binaries and not family.staging]
    owners += [family for family in (KNOWN.kubernetes(release),) if binary in family.binaries]
    assert owners == [KNOWN.owner(binary, release)]


def test_a_release_is_found_by_each_of_its_aliases() -> None:
    assert KNOWN.kubernetes("1.37") is KNOWN.kubernetes() is KNOWN.kubernetes("default")
    assert KNOWN.kubernetes("1.36").version.startswith("v1.36.")


def test_an_alias_belongs_to_one_family_only() -> None:
    aliases = [alias for family in KNOWN.families for alias in family.aliases]
    assert len(aliases) == len(set(aliases))


def test_an_unknown_release_is_answered_with_the_known_ones() -> None:
    with pytest.raises(
        BuildError, match=r"Kubernetes 9\.99 is not in tools/kube/tools\.toml; known are 1\.37, default"
    ):
        KNOWN.kubernetes("9.99")


def test_an_unknown_program_is_named() -> None:
    with pytest.raises(BuildError, match="builds 'kube-magic'"):
        KNOWN.owner("kube-magic")


def test_an_unknown_family_is_named() -> None:
    with pytest.raises(BuildError, match="No family called 'nope'"):
        KNOWN.family("nope")


def test_sets_open_up_in_build_order_each_program_once() -> None:
    assert KNOWN.expand(["kubectl", "planes", "kwok", "etcd"]) == [
        "kubectl",
        "etcd",
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
        "kwok",
    ]


def test_kubernetes_is_stamped_in_both_version_packages() -> None:
    stamps = catalog.kubernetes_stamps("v1.37.1")
    for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version"):
        assert stamps[f"{package}.gitVersion"] == "v1.37.1"
        assert stamps[f"{package}.gitMajor"] == "1"
        assert stamps[f"{package}.gitMinor"] == "37"
    assert "-X k8s.io/component-base/version.gitVersion=v1.37.1" in KNOWN.kubernetes("1.37").link_flags()


def test_a_stamp_may_keep_or_drop_the_v() -> None:
    family = dataclasses.replace(KNOWN.family("etcd"), version="v3.0.1", stamps={"a.B": "{bare}", "a.C": "{version}"})
    assert family.link_flags() == "-s -w -X a.B=3.0.1 -X a.C=v3.0.1"


def _fingerprint_after(family: Family, path: str, text: str) -> str:
    (family.folder / path).write_text(text)
    return family.fingerprint()


def test_the_fingerprint_follows_pins_and_sources(tiny: Catalog) -> None:
    family = tiny.family("tiny")
    seen = [family.fingerprint()]
    seen.append(_fingerprint_after(family, "go.sum", "one"))
    seen.append(_fingerprint_after(family, "go.sum", "two"))
    seen.append(_fingerprint_after(family, "go.mod", "module other\n"))
    seen.append(_fingerprint_after(family, "hello/main.go", "package main\n"))
    seen.append(_fingerprint_after(family, "hello/more.go", "package main\n"))
    assert len(set(seen)) == len(seen)


@pytest.mark.parametrize(
    "change",
    [
        {"tags": ("netgo",)},
        {"cgo": True},
        {"ldflags": "-linkmode external"},
        {"stamps": {"main.version": "{version}"}},
        {"binaries": {"hello": "bye"}},
    ],
)
def test_the_fingerprint_follows_flags(tiny: Catalog, change: dict[str, object]) -> None:
    family = tiny.family("tiny")
    other = dataclasses.replace(family, **change)  # type: ignore[arg-type]
    assert other.fingerprint() != family.fingerprint()


def test_the_fingerprint_does_not_follow_time_or_place(tiny: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    family = tiny.family("tiny")
    before = family.fingerprint()
    os.utime(family.folder / "go.mod", (0, 0))
    moved = family.folder.parents[1].rename(family.folder.parents[2] / "elsewhere")
    monkeypatch.setattr(catalog, "HERE", Path(moved))
    assert family.fingerprint() == before
