"""Keeps modules/<family>/go.mod in step with `tools.toml`: writes it anew for a bump, checks it otherwise.

go.mod holds, besides what is declared here, the indirect requirements that Go itself found; these are left alone.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tools.cache import replacing
from tools.errors import BuildError
from tools.kube import golang
from tools.kube.catalog import Catalog, Family


def declared(family: Family, go_minimum: str, staging: list[str]) -> str:
    """go.mod as `tools.toml` asks for it, before Go adds the indirect requirements."""
    tools = "".join(f"\t{family.package(name)}\n" for name in sorted(family.binaries))
    text = f"module syncgroup.dev/tools/{family.name}\n\ngo {go_minimum}\n\ntool (\n{tools})\n\n"
    text += f"require {family.module} {family.version}\n"
    if staging:
        inner = "v0" + family.version[2:]
        text += "\nreplace (\n" + "".join(f"\t{name} => {name} {inner}\n" for name in staging) + ")\n"
    return text


def problems(family: Family) -> Iterator[str]:
    """What in the committed go.mod does not follow from `tools.toml`."""
    path = family.folder / "go.mod"
    if not path.exists() or not (family.folder / "go.sum").exists():
        yield f"{family.name}: go.mod or go.sum is missing; run `make tools-lock`"
        return
    text = path.read_text()
    if not re.search(rf"^(require )?\s*{re.escape(family.module)} {re.escape(family.version)}( //.*)?$", text, re.M):
        yield f"{family.name}: go.mod does not require {family.module} {family.version}; run `make tools-lock`"
    for name in family.binaries:
        if not re.search(rf"^(tool )?\s*{re.escape(family.package(name))}$", text, re.M):
            yield f"{family.name}: go.mod has no tool line for {family.package(name)}; run `make tools-lock`"
    inner = "v0" + family.version[2:]
    wrong = [line.strip() for line in text.splitlines() if "=>" in line and not line.endswith(inner)]
    if family.staging and wrong:
        yield f"{family.name}: go.mod replaces with another release: {wrong[0]}"


def check(catalog: Catalog) -> list[str]:
    """All problems of all families."""
    return [problem for family in catalog.families if not family.local for problem in problems(family)]


def relock(catalog: Catalog, family: Family) -> None:
    """Write go.mod anew and let Go fill in the rest by resolving every program of the family."""
    go = golang.find(catalog.go_minimum, catalog.go_wheel)
    staging = _staging_modules(go, family) if family.staging else []
    tags = ",".join([*family.tags, *family.seccomp_tags])
    packages = [family.package(name) for name in family.binaries]
    with replacing(family.folder) as staged:  # without a network the old pins stay as they were
        staged.mkdir()
        (staged / "go.mod").write_text(declared(family, catalog.go_minimum, staging))
        if family.own_sums:
            (staged / "go.sum").write_bytes((Path(_downloaded(go, family)["Dir"]) / "go.sum").read_bytes())
        _run(go, [go.program, "list", "-mod=mod", "-tags", tags, "-deps", *packages], staged)


def _staging_modules(go: golang.Go, family: Family) -> list[str]:
    """The modules that Kubernetes keeps in its own tree, read from its go.mod."""
    text = Path(_downloaded(go, family)["GoMod"]).read_text()
    return sorted(set(re.findall(r"^\s*(k8s\.io/\S+) => \./staging", text, re.M)))


def _downloaded(go: golang.Go, family: Family) -> dict[str, str]:
    """Where Go put the family's module."""
    pin = f"{family.module}@{family.version}"
    answer: dict[str, str] = json.loads(_run(go, [go.program, "mod", "download", "-json", pin], Path("/")))
    return answer


def _run(go: golang.Go, command: list[str], folder: Path) -> str:
    done = subprocess.run(
        command, cwd=folder, env=go.environment(cgo=True), capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise BuildError(f"`{' '.join(command[1:4])} …` failed in {folder}: {done.stderr.strip()[-400:]}")
    return done.stdout
