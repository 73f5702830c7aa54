"""kopf as an informer: what it must not do to the objects that it watches."""

from __future__ import annotations

from sync_runtime.contract.names import FINALIZER
from syncgroup_operator.handlers.run import kopf_settings


def test_kopf_does_not_know_our_finalizer() -> None:
    # It removes the one that it knows wherever no handler of its own needs it: groups would vanish, their pods in other
    # clusters would stay.
    assert kopf_settings().persistence.finalizer != FINALIZER
