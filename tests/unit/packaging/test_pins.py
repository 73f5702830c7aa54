"""The pinned requirements are whole, hashed, free of addresses, and agree with what pyproject.toml asks for."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

REQUIREMENTS = Path(__file__).parents[3] / "requirements"
FILES = sorted(path.name for path in REQUIREMENTS.glob("*.txt"))
EXTRAS = ("operator", "sidecar", "library", "interop", "dev")


class Pin(NamedTuple):
    """One entry of a requirements file."""

    requirement: Requirement
    hashes: list[str]

    @property
    def version(self) -> str:
        """The pinned version; fails where there is no exact one."""
        (specifier,) = self.requirement.specifier
        assert specifier.operator == "=="
        return specifier.version


def parse(text: str) -> list[Pin]:
    """Entries of a requirements file as uv writes it: continued lines, comments, hashes."""
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("#"))
    joined = "\n".join(lines).replace("\\\n", " ")
    entries = (line.split(" --hash=") for line in joined.splitlines() if line.strip())
    return [Pin(Requirement(entry[0].strip()), [value.strip() for value in entry[1:]]) for entry in entries]


def pins(name: str) -> dict[str, Pin]:
    found = parse((REQUIREMENTS / name).read_text(encoding="utf-8"))
    return {canonicalize_name(pin.requirement.name): pin for pin in found}


def asked_for(project: dict[str, Any], extra: str) -> list[Requirement]:
    """The direct dependencies of an extra, with the project's own extras put in their place."""
    direct: list[Requirement] = []
    for line in project["optional-dependencies"][extra]:
        requirement = Requirement(line)
        if canonicalize_name(requirement.name) == project["name"]:
            for inner in sorted(requirement.extras):
                direct += asked_for(project, inner)
        else:
            direct.append(requirement)
    return direct


def test_a_pin_is_read_with_its_marker_and_its_hashes() -> None:
    text = (
        "# by uv\na==1 ; sys_platform == 'linux' \\\n    --hash=sha256:aa \\\n    --hash=sha256:bb\n    # via c\nb==2\n"
    )
    first, second = parse(text)
    assert (first.requirement.name, first.version, first.hashes) == ("a", "1", ["sha256:aa", "sha256:bb"])
    assert (second.requirement.name, second.hashes) == ("b", [])


@pytest.mark.parametrize("extra", EXTRAS)
def test_every_extra_has_its_pins(extra: str) -> None:
    assert f"{extra}.txt" in FILES


@pytest.mark.parametrize("name", FILES)
def test_every_requirement_is_pinned_to_one_version_with_hashes(name: str) -> None:
    for pin in pins(name).values():
        assert pin.version
        assert pin.hashes, f"{pin.requirement.name} has no hash"
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", value) for value in pin.hashes)


@pytest.mark.parametrize("name", FILES)
def test_no_requirement_says_where_it_comes_from(name: str) -> None:
    text = (REQUIREMENTS / name).read_text(encoding="utf-8")
    assert re.findall(r"^\s*-{1,2}[a-gi-z][\w-]*|\w+://|\s@\s", text, re.MULTILINE) == []


@pytest.mark.parametrize("extra", EXTRAS)
def test_the_pins_satisfy_what_the_extra_asks_for(extra: str, project: dict[str, Any]) -> None:
    pinned = pins(f"{extra}.txt")
    for requirement in asked_for(project, extra):
        pin = pinned[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(pin.version, prereleases=True), f"{requirement} against {pin.version}"


@pytest.mark.parametrize("name", ["sidecar.txt", "operator.txt"])
def test_sidecar_and_operator_are_pinned_without_torch(name: str) -> None:
    heavy = {package for package in pins(name) if package in {"torch", "triton"} or package.startswith("nvidia-")}
    assert heavy == set()


def test_all_files_but_those_of_engines_pin_a_package_to_the_same_version() -> None:
    versions: dict[str, set[str]] = {}
    for name in (one for one in FILES if not one.startswith("engine-")):  # engines pin their own torch
        for package, pin in pins(name).items():
            versions.setdefault(package, set()).add(pin.version)
    assert {package: found for package, found in versions.items() if len(found) > 1} == {}


def test_the_product_s_pins_are_part_of_the_developer_s() -> None:
    assert set(pins("operator.txt")) | set(pins("sidecar.txt")) <= set(pins("dev.txt"))
