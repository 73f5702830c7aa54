"""Runs our commands as a person would on a host that lacks something, and checks that they end as promised."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
NAMESPACE = ("unshare", "--user", "--map-root-user", "--mount")
"""Makes whoever runs the tests root over mounts and sysctls of a namespace of their own."""
BUILDER, CLUSTER = "tools.kube", "tools.devcluster"


def run(
    module: str,
    *arguments: str,
    environment: Mapping[str, str | None] | None = None,
    wrapper: Sequence[str] = (),
    before: Callable[[], None] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run `python -m module arguments`; a variable that is None is taken out of the environment."""
    variables = {**os.environ, **(environment or {})}
    return subprocess.run(
        [*wrapper, sys.executable, "-m", module, *arguments],
        env={name: value for name, value in variables.items() if value is not None},
        capture_output=True,
        text=True,
        check=False,
        cwd=REPOSITORY,
        preexec_fn=before,
    )


def sentence(done: subprocess.CompletedProcess[str], code: int = 2) -> str:
    """The one sentence with which a command ended; progress lines are indented and do not count."""
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    assert "Traceback" not in done.stderr + done.stdout
    errors = [line for line in done.stderr.splitlines() if not line.startswith("  ")]
    assert len(errors) == 1, done.stderr
    assert errors[0].startswith("error: ")
    return errors[0].removeprefix("error: ")


def files_below(folder: Path) -> list[str]:
    """Names of files that somebody might believe in: neither locks nor Go's own."""
    found = [path for path in folder.rglob("*") if path.is_file() and not path.name.endswith(".lock")]
    return sorted(str(path.relative_to(folder)) for path in found)


def folder_of_programs(folder: Path, *names: str) -> str:
    """A PATH on which only these programs are found."""
    folder.mkdir()
    for name in names:
        program = shutil.which(name)
        if program is None:
            pytest.skip(f"the program {name} is not on this machine")
        (folder / name).symlink_to(os.path.realpath(program))
    return str(folder)


def need_namespaces() -> None:
    """Skip where a user namespace with mounts of its own is forbidden."""
    if shutil.which("unshare") is None:
        pytest.skip("the program unshare is not on this machine")
    probe = subprocess.run([*NAMESPACE, "true"], capture_output=True, text=True, check=False)
    if probe.returncode != 0:
        pytest.skip(f"user namespaces are forbidden here: {probe.stderr.strip()}")


def on_small_disk(mount_point: Path, options: str) -> list[str]:
    """A wrapper that lays a small file system over `mount_point` for one command."""
    need_namespaces()
    mount_point.mkdir(parents=True, exist_ok=True)
    script = f"mount -t tmpfs -o {options} small '{mount_point}' && exec \"$@\""
    return [*NAMESPACE, "sh", "-c", script, "sh"]
