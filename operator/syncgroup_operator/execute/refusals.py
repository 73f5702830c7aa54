"""Which pods an API server refused to make, and how long to wait before it is asked again.

A quota, a policy or a template that is no pod: the answer was definite, so there surely is no pod under that name.
Asking again at once would get the same answer; never asking again would miss the day on which the quota grows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from sync_runtime.contract.names import LABEL_INDEX, LABEL_ROLE, GroupKey
from syncgroup_operator import reasons
from syncgroup_operator.planning.diff import Action, Apply
from syncgroup_operator.planning.observation import Slot
from syncgroup_operator.planning.problems import Failure

FIRST_PAUSE_S: Final = 2.0
MAX_PAUSE_S: Final = 60.0
_DEFINITE: Final = frozenset({reasons.DENIED, reasons.TEMPLATE_REFUSED})


@dataclass(frozen=True, slots=True)
class _Refused:
    generation: int
    slots: frozenset[Slot] = frozenset()
    failures: int = 0


class Refusals:
    """What was refused, by group; a changed spec begins anew."""

    def __init__(self) -> None:
        self._kept: dict[GroupKey, _Refused] = {}

    def slots(self, key: GroupKey, generation: int) -> frozenset[Slot]:
        """Seats whose pod was refused when it was last asked for."""
        kept = self._kept.get(key)
        return kept.slots if kept is not None and kept.generation == generation else frozenset()

    def note(
        self, key: GroupKey, generation: int, actions: Iterable[Action], failures: Iterable[Failure]
    ) -> float | None:
        """What came of a pass; how long to wait before the next where something failed."""
        failed = list(failures)
        asked = {action.key.name: _slot(action) for action in actions if _makes_pod(action)}
        refused = {failure.what.rpartition(" ")[2] for failure in failed if failure.reason in _DEFINITE}
        before = self._kept.get(key)
        if before is None or before.generation != generation:
            before = _Refused(generation)
        slots = (before.slots - set(asked.values())) | {slot for name, slot in asked.items() if name in refused}
        if not failed and not slots:
            self._kept.pop(key, None)
            return None
        count = before.failures + 1 if failed else 0
        self._kept[key] = _Refused(generation, frozenset(slots), count)
        return min(FIRST_PAUSE_S * float(1 << min(count - 1, 10)), MAX_PAUSE_S) if failed else None

    def forget(self, key: GroupKey) -> None:
        """The group is gone."""
        self._kept.pop(key, None)


def _makes_pod(action: Action) -> bool:
    return isinstance(action, Apply) and action.key.kind == "Pod"


def _slot(action: Action) -> Slot:
    labels = action.document["metadata"]["labels"] if isinstance(action, Apply) else {}
    return Slot(str(labels[LABEL_ROLE]), int(labels[LABEL_INDEX]))
