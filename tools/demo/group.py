"""The demo's group as it is applied, the run that it makes, and what the chart is told. Pure, but for one file.

`group.yaml` is what a user would write. On this machine its containers run this machine's Python in the place of an
image, with the figures of the run behind their commands.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import yaml

from examples.grpo.settings import TINY, Settings, as_arguments, tiny_parameters
from sync_runtime.contract import names
from tools.devcluster import hostpython

Document = dict[str, Any]
FILE: Final = Path(__file__).with_name("group.yaml")
NAMESPACE: Final = "rl"
NAME: Final = "demo"
KEY: Final = names.GroupKey(NAMESPACE, NAME)
SYSTEM: Final = "syncgroup-system"
RELEASE: Final = "syncgroup"
STOP_FILE: Final = "/run/grpo/stop"
WIRE_BYTES: Final = 2
"""Of an element: bf16."""
RUN: Final = replace(TINY, steps=100_000, groups=10, samples=16, ahead=1, width=128, layers=2, learning_rate=8e-4)
"""Enough steps that only the stop file ends it. A model whose versions are large enough to be seen on a slow link."""


def load() -> Document:
    """The group as its file has it."""
    found: Document = yaml.safe_load(FILE.read_text())
    return found


def full_bytes(settings: Settings = RUN) -> int:
    """All weights as they would travel without a delta."""
    return tiny_parameters(settings) * WIRE_BYTES


def runnable(group: Document, settings: Settings = RUN, *, endpoint: str | None = None) -> Document:
    """The same group with containers that run on this machine; `endpoint`: where traces go."""
    spec = group["spec"]
    changed = {
        "trainer": spec["trainer"] | {"template": _template(spec["trainer"]["template"], settings)},
        "rollouts": [one | {"template": _template(one["template"], settings)} for one in spec["rollouts"]],
        **({"telemetry": {"endpoint": endpoint}} if endpoint else {}),
    }
    return group | {"spec": spec | changed}


def external(group: Document, host: str, port: int) -> Document:
    """The same group whose trainer is dialled at an address of ours, where no load balancer is.

    Without a rollout in the hub: there the trainer has a name that only pods can look up.
    """
    spec = group["spec"]
    exposure = {"type": "External", "host": host, "port": port}
    rollouts = [one for one in spec["rollouts"] if one["region"] != spec["trainer"]["region"]]
    return group | {"spec": spec | {"trainer": spec["trainer"] | {"exposure": exposure}, "rollouts": rollouts}}


def arguments(template: Mapping[str, Any], settings: Settings = RUN) -> list[str]:
    """What Python is given to run a template's container."""
    (container,) = template["spec"]["containers"]
    return [*container["command"][1:], *as_arguments(settings)]


def chart_values(operator: str, runtime: str) -> Document:
    """Values for `helm install`: images by name, and an operator that suits a small machine."""
    return {
        "replicas": 1,
        "image": _image(operator) | {"pullPolicy": "IfNotPresent"},
        "runtime": {"image": _image(runtime)},
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}},
        "settings": {"clusterLostSeconds": 5, "leaderElection": False},  # there is one replica
    }


def member_names() -> dict[str, str]:
    """Region by member: one rollout per region, and the trainer."""
    spec = load()["spec"]
    found = {names.member_name(KEY, names.TRAINER_ROLE, 0): str(spec["trainer"]["region"])}
    return found | {names.member_name(KEY, one["name"], 0): str(one["region"]) for one in spec["rollouts"]}


def trainer_name() -> str:
    """The trainer's pod."""
    return names.member_name(KEY, names.TRAINER_ROLE, 0)


def _template(given: Document, settings: Settings) -> Document:
    spec = given["spec"]
    (container,) = spec["containers"]
    main = hostpython.container(
        container["name"], arguments(given, settings), volumeMounts=container.get("volumeMounts", []),
        environment={one["name"]: one["value"] for one in container.get("env", [])},
    )  # fmt: skip
    volumes = [*hostpython.volumes(), *spec.get("volumes", [])]
    return {"spec": spec | {"volumes": volumes, "containers": [main]}}


def _image(reference: str) -> Document:
    repository, _, tag = reference.rpartition(":")
    return {"repository": repository, "tag": tag}
