"""Trainer and rollouts under one view: where a template stands in the spec, and where its pods may run.

Pure. Knows the spec, nothing of pods.
"""

from __future__ import annotations

from dataclasses import dataclass

from sync_runtime.contract.names import TRAINER_ROLE
from sync_runtime.contract.rollout import Rollout, ServedFolder, Spread
from sync_runtime.contract.syncgroup import SyncGroupSpec
from sync_runtime.contract.template import PodTemplate
from sync_runtime.contract.trainer import Trainer
from syncgroup_operator.planning.observation import Place


@dataclass(frozen=True, slots=True)
class Part:
    """The trainer, or one rollout."""

    role: str
    field: str
    """Where it stands in the spec, as a user says it: `spec.rollouts[eu]`."""
    template: PodTemplate
    container: str | None
    spread: Spread
    places: tuple[Place, ...]
    """Where its pods may run: home first, then the fallbacks."""
    served: ServedFolder | None = None
    """What its sidecars keep level instead of a process."""

    @property
    def home(self) -> Place:
        """Where its pods run unless they were moved."""
        return self.places[0]

    @property
    def verb(self) -> str:
        """What its container does, for sentences."""
        return "trains" if self.role == TRAINER_ROLE else "generates"


def parts_of(spec: SyncGroupSpec) -> tuple[Part, ...]:
    """The trainer, then the rollouts in the order of the spec."""
    return (_trainer(spec.trainer), *(_rollout(rollout) for rollout in spec.rollouts))


def part_of(spec: SyncGroupSpec, role: str) -> Part | None:
    """The part of one role; None where the spec no longer has it."""
    if role == TRAINER_ROLE:
        return _trainer(spec.trainer)
    return next((_rollout(rollout) for rollout in spec.rollouts if rollout.name == role), None)


def _trainer(trainer: Trainer) -> Part:
    home = Place(trainer.cluster, trainer.region)
    return Part(TRAINER_ROLE, "spec.trainer", trainer.template, trainer.container, "None", (home,))


def _rollout(rollout: Rollout) -> Part:
    home = Place(rollout.cluster, rollout.region)
    fallbacks = (Place(place.cluster, place.region) for place in rollout.placement.fallback)
    return Part(
        role=rollout.name,
        field=f"spec.rollouts[{rollout.name}]",
        template=rollout.template,
        container=rollout.container,
        spread=rollout.placement.spread,
        places=(home, *fallbacks),
        served=rollout.served_folder,
    )
