"""kopf watches; what the engine keeps on objects is none of its business."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import kopf
import pytest

from sync_runtime.contract.names import FINALIZER
from syncgroup_operator.handlers.run import kopf_settings, operate
from syncgroup_operator.settings import OperatorSettings


def test_kopf_never_takes_the_engines_finalizer_for_its_own() -> None:
    # It removes its own from whatever its handlers do not need it for: the two would write against each other for ever.
    assert kopf_settings().persistence.finalizer != FINALIZER


def test_kopf_is_told_who_this_is_and_need_not_ask_for_a_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[str, Any] = {}

    async def informer(**given: Any) -> None:
        told.update(given)

    monkeypatch.setattr(kopf, "operator", informer)
    # In a container the user is a number, often without an entry in /etc/passwd: kopf would end there.
    asyncio.run(operate(OperatorSettings(identity="replica-7", kubeconfig=tmp_path / "none")))
    assert told["identity"] == "replica-7"
