"""Our images: what they are made of, building them, and having them on the dev cluster's nodes.

    from tools import images

    found = images.cached()             # those of exactly this checkout, if they were built; builds nothing
    reason = images.why_impossible()    # None where they can be built here, otherwise one sentence
    found = images.build()              # builds what is missing (minutes)

    ClusterConfig(images=tuple(map(str, found.archives)), …)       # nodes then have them
    found.chart_values()                                           # the chart's values to run them

Knows Containerfiles, builders and archives; knows nothing of what runs in the images.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.images import daemonless
from tools.images.catalog import IMAGES
from tools.images.daemonless import why_impossible

__all__ = ["Built", "Images", "build", "cached", "ensure", "why_impossible"]


@dataclass(frozen=True)
class Built:
    """One image of this checkout."""

    archive: Path
    reference: str


@dataclass(frozen=True)
class Images:
    """What runs on a cluster: operator and runtime."""

    operator: Built
    runtime: Built

    @property
    def archives(self) -> tuple[Path, ...]:
        """For the dev cluster's nodes."""
        return (self.operator.archive, self.runtime.archive)

    def chart_values(self) -> dict[str, Any]:
        """The chart's values with which these images run, and are never looked for in a registry."""
        operator, runtime = (one.reference.rpartition(":") for one in (self.operator, self.runtime))
        return {
            "image": {"repository": operator[0], "tag": operator[2], "pullPolicy": "Never"},
            "runtime": {"image": {"repository": runtime[0], "tag": runtime[2]}},
        }


def cached() -> Images | None:
    """The images of exactly this checkout, where both were built; builds nothing."""
    found = _images()
    return found if all(path.exists() for path in found.archives) else None


def build() -> Images:
    """Builds what is missing; raises HostError where it is impossible, BuildError where it fails."""
    builder = daemonless.Builder(_say)
    builder.must_be_possible()
    for name in ("operator", "runtime"):
        builder.ensure(IMAGES[name])
    return _images()


def ensure(name: str) -> Built:
    """Any one image of this checkout by name, built where that was not done; raises as `build` does."""
    builder = daemonless.Builder(_say)
    builder.must_be_possible()
    return Built(builder.ensure(IMAGES[name]), daemonless.reference_of(IMAGES[name]))


def _images() -> Images:
    made = {
        name: Built(daemonless.archive_of(IMAGES[name]), daemonless.reference_of(IMAGES[name]))
        for name in ("operator", "runtime")
    }
    return Images(made["operator"], made["runtime"])


def _say(text: str) -> None:
    sys.stderr.write(f"  {text}\n")
    sys.stderr.flush()
