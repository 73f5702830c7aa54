"""kopf watches; what the engine keeps on objects is none of its business."""

from __future__ import annotations

from sync_runtime.contract.names import FINALIZER
from syncgroup_operator.handlers.run import kopf_settings


def test_kopf_never_takes_the_engines_finalizer_for_its_own() -> None:
    # It removes its own from whatever its handlers do not need it for: the two would write against each other for ever.
    assert kopf_settings().persistence.finalizer != FINALIZER
