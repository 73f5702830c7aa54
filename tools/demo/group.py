"""The demo's group as it is applied, the run that it makes, and what the chart is told. Pure, but for one file.

`group.yaml` is what a user would write. On this machine its containers run this machine's Python in the place of an
image, or the examples' image where one was built, with the figures of the run behind their commands.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
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
MODELS: Final = "/models"
"""Where pods see the folder with a model's file."""
ABOUT: Final = (
    "One trainer and a rollout in each of three regions, kept bit-identical while a small transformer learns sums by "
    "reinforcement. What was broken on the way was broken on purpose."
)
WIRE_BYTES: Final = 2
"""Of an element: bf16."""
RUN: Final = replace(TINY, steps=100_000, groups=10, samples=16, ahead=1, width=128, layers=2, learning_rate=8e-4)
"""Enough steps that only the stop file ends it. A model whose versions are large enough to be seen on a slow link."""


@dataclass(frozen=True)
class Programs:
    """What runs in the user's containers."""

    settings: Settings = RUN
    image: str | None = None
    """The examples' image; None: this machine's Python."""
    model: Path | None = None
    """The file of a model that is not made here, on this machine."""


DEFAULT: Final = Programs()


def load() -> Document:
    """The group as its file has it."""
    found: Document = yaml.safe_load(FILE.read_text())
    return found


def full_bytes(settings: Settings = RUN) -> int:
    """All weights as they would travel without a delta."""
    return tiny_parameters(settings) * WIRE_BYTES


def runnable(group: Document, programs: Programs = DEFAULT, *, endpoint: str | None = None) -> Document:
    """The same group with containers that run on this machine; `endpoint`: where traces go."""
    spec = group["spec"]
    changed = {
        "trainer": spec["trainer"] | {"template": _template(spec["trainer"]["template"], programs)},
        "rollouts": [one | {"template": _template(one["template"], programs)} for one in spec["rollouts"]],
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


def stop_command(programs: Programs = DEFAULT) -> list[str]:
    """What ends training, in the trainer's container: our images have no shell and no `touch`."""
    python = "python" if programs.image is not None else sys.executable
    return [python, "-c", f"open({STOP_FILE!r}, 'w')"]


def _template(given: Document, programs: Programs) -> Document:
    spec = given["spec"]
    (container,) = spec["containers"]
    words, volumes = arguments(given, programs.settings), list(spec.get("volumes", []))
    mounts = list(container.get("volumeMounts", []))
    if programs.model is not None:
        words += ["--gguf", f"{MODELS}/{programs.model.name}"]
        volumes.append({"name": "models", "hostPath": {"path": str(programs.model.parent)}})
        mounts.append({"name": "models", "mountPath": MODELS, "readOnly": True})
    if programs.image is not None:
        command = [container["command"][0], *words]
        main = container | {"image": programs.image, "imagePullPolicy": "Never", "command": command}
        main |= {"volumeMounts": mounts}
    else:
        variables = {one["name"]: one["value"] for one in container.get("env", [])}
        main = hostpython.container(container["name"], words, environment=variables, volumeMounts=mounts)
        volumes = [*hostpython.volumes(), *volumes]
    return {"spec": spec | {"volumes": volumes, "containers": [main]}}


def _image(reference: str) -> Document:
    repository, _, tag = reference.rpartition(":")
    return {"repository": repository, "tag": tag}
