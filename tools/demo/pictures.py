"""Which images operator and sidecar run from: those that were built, else ones of this checkout; and says which."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tools import images
from tools.devcluster import operatorimage, runtimeimage


@dataclass(frozen=True)
class Chosen:
    """References for the chart, and the archives that nodes import."""

    operator: str
    runtime: str
    archives: tuple[str, ...]


def choose(folder: Path, say: Callable[[str], None]) -> Chosen:
    """Images for the operator and the sidecar: those of exactly this checkout that `make images` or a test built."""
    built = images.cached()
    if built is not None:
        say(f"operator and sidecar from the images {built.operator.reference} and {built.runtime.reference}")
        return Chosen(built.operator.reference, built.runtime.reference, tuple(map(str, built.archives)))
    say("operator and sidecar from images made of this checkout and this machine's Python (longer the first time)")
    runtimeimage.compile_loops()
    operator, runtime = folder / "operator.tar", folder / "runtime.tar"
    operatorimage.build(operator)
    runtimeimage.build(runtime)
    return Chosen(operatorimage.REFERENCE, runtimeimage.REFERENCE, (str(operator), str(runtime)))
