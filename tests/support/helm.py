"""Helm as tests use it: the programs that `tools.kube` built, with folders of their own, and the chart as objects.

Nothing is built here: a test that wants a Helm which is not there skips and says how to get it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tools.kube import build, catalog

CHART = Path(__file__).resolve().parents[2] / "charts" / "syncgroup"
NAMESPACE = "syncgroup-system"
RELEASE = "syncgroup"
Values = Mapping[str, Any]
Objects = dict[str, dict[str, Any]]
# The C loader reads the CRDs in a tenth of the time; PyYAML has it wherever its wheel is used.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class HelmError(Exception):
    """Helm refused; its words."""


class Helm:
    """One program, `helm` (4) or `helm3`."""

    def __init__(self, program: Path, home: Path) -> None:
        self.program = program
        folders = {f"HELM_{kind}_HOME": str(home / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA")}
        self._environment = os.environ | folders

    def run(self, *arguments: str, values: Values | None = None, timeout_s: float = 60.0) -> str:
        """Run it, values by standard input; raises HelmError with what it said."""
        command = [str(self.program), *arguments, *(["--values", "-"] if values is not None else [])]
        text = None if values is None else json.dumps(values)
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, check=False, timeout=timeout_s, env=self._environment
        )
        if done.returncode != 0:
            raise HelmError(done.stdout + done.stderr)
        return done.stdout

    def lint(self, values: Values) -> str:
        """Lint the chart, warnings being errors."""
        return self.run("lint", "--strict", str(CHART), values=values)

    def render(self, values: Values | None = None, namespace: str = NAMESPACE) -> Objects:
        """The chart's objects by `Kind namespace/name`, none of them twice."""
        text = self.run("template", RELEASE, str(CHART), "--namespace", namespace, values=values or {})
        documents = [one for one in yaml.load_all(text, Loader=_LOADER) if one is not None]
        found = {key_of(document): document for document in documents}
        assert len(found) == len(documents), "an object is rendered twice"
        return found


def key_of(document: Mapping[str, Any]) -> str:
    """`Kind namespace/name`, or `Kind name` for what has no namespace."""
    metadata = document["metadata"]
    place = f"{metadata['namespace']}/" if "namespace" in metadata else ""
    return f"{document['kind']} {place}{metadata['name']}"


def figures(expression: str) -> list[tuple[str, str]]:
    """The figures that an expression of Prometheus asks for, each with its labels as text."""
    return re.findall(r"([a-z_]+)\{([^}]*)\}", expression)


def find(name: str, home: Path) -> Helm:
    """A Helm by the name that tools.toml has for it; skips where it is not built."""
    known = catalog.load()
    program = build.installed_at(known.owner(name), name)
    if not program.exists():
        pytest.skip(f"{name} is not built here: python -m tools.kube build {name}")
    return Helm(program, home)
