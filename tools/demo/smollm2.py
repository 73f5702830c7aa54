"""SmolLM2-135M in the place of the demo's tiny model: its group, its run, its story. Pure, but for the model's file.

The same clusters, images and group; more patience everywhere, for members share a few cores. Nothing is broken on
purpose: this shows that a real model learns in pods of several regions, and that its bits are the same in all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from examples.grpo.settings import SMOLLM2
from tools.demo import group
from tools.demo.facts import Scene
from tools.demo.group import Document
from tools.demo.story import Beat, first_reward, last_reward, proven, serving

RUN: Final = replace(SMOLLM2, steps=100_000)
"""Enough steps that only the stop file ends it."""
PARAMETERS: Final = 134_515_008
"""Of the model; tied weights once."""
ABOUT: Final = (
    "One trainer and a rollout in each of three regions, kept bit-identical while SmolLM2-135M learns sums by "
    "reinforcement, in pods of real nodes."
)
START_S: Final = 1200.0
STEP_S: Final = 240.0
"""The longest that a step may take, on average, on a machine that does other things too."""
LEASE: Final = {"durationSeconds": 180, "renewIntervalSeconds": 10, "lostGraceSeconds": 3600}
"""A member that trains or samples on the only core renews late: it is not replaced for that."""
WORK_LEASE_SECONDS: Final = 600
MIB: Final = 1 << 20
# The mirror of the weights that a sidecar keeps without a GPU, and every version of the run.
STORAGE: Final = {"sizeBytes": 4096 * MIB, "sharedMemoryBytes": 128 * MIB}


def full_bytes() -> int:
    """All weights as they would travel without a delta."""
    return PARAMETERS * group.WIRE_BYTES


def patient(given: Mapping[str, Any]) -> Document:
    """The demo's group for a model that is a thousand times larger."""
    spec = given["spec"]
    return dict(given) | {
        "spec": spec
        | {
            "lease": spec["lease"] | LEASE,
            "work": spec["work"] | {"leaseSeconds": WORK_LEASE_SECONDS},
            "runtime": spec["runtime"] | {"storage": STORAGE},
            "sync": {key: value for key, value in spec["sync"].items() if key != "bucketBytes"},
        }
    }


def story(steps: int) -> list[Beat]:
    """It starts, it learns for so many steps, all have the same bits."""
    return [
        Beat("start", "SmolLM2-135M starts in every region", "every member to serve", serving, START_S),
        Beat(
            "learn", "reinforcement learning over three regions", f"{steps} steps",
            lambda before, now: trained(steps, now), steps * STEP_S,
        ),
        Beat("proof", "training ends; everybody tells the SHA-256 of its weights", "all sums", proven, START_S,
             action="stop"),
    ]  # fmt: skip


def trained(steps: int, now: Scene) -> str | None:
    """Enough steps, and every rollout has left the version that it started from."""
    if len(now.steps) < steps or not now.rollouts or not all(one.seq for one in now.rollouts):
        return None
    return (
        f"{now.steps[-1].step} steps, version {now.seq}; "
        f"mean reward {first_reward(now.steps):.2f} → {last_reward(now.steps):.2f}"
    )
