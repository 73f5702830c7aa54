"""What a pass may leave to the next one, and what passes owe to everybody else in the process."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace

import pytest

from sync_runtime.contract.names import GroupKey
from syncgroup_operator.execute.act import pressing
from syncgroup_operator.execute.engine import Engine
from syncgroup_operator.execute.reactions import SPEC
from syncgroup_operator.planning.diff import Action, Apply, Delete
from syncgroup_operator.planning.observation import ObjectKey
from syncgroup_operator.settings import OperatorSettings

KEY = GroupKey("rl", "policy")


def pod(name: str, instead_of: str = "") -> Apply:
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "rl"}}
    return Apply("local", document, instead_of=instead_of)


def test_successors_come_before_everything_else_and_the_rest_is_left_to_the_next_pass() -> None:
    successor = pod("policy-eu-0", instead_of="u1")
    gone = Delete("local", ObjectKey("Pod", "rl", "policy-eu-7"), "u7", None)
    actions: list[Action] = [pod("policy-eu-1"), successor, gone]
    assert pressing(actions) == ([successor], True)
    assert pressing([successor]) == ([successor], False)
    assert pressing([actions[0], gone]) == ([actions[0], gone], False)
    assert pressing([]) == ([], False)


def test_who_lost_the_lead_while_waiting_for_a_turn_does_not_act(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> list[GroupKey]:
        engine = Engine(OperatorSettings(kubeconfig=Path("none"), leader_election=False))
        acted: list[GroupKey] = []

        class Passes:
            resting = SimpleNamespace(goes_on_s=lambda _key: None)

            async def reconcile(self, key: GroupKey, _acted: object) -> None:
                acted.append(key)

            def waits(self, _key: GroupKey) -> bool:
                return False

        monkeypatch.setattr(engine, "reconciler", Passes())
        engine.leading = True
        async with engine._turns.taken():
            engine.queue.wake(KEY)
            assert await engine.queue.take() == KEY
            waiting = asyncio.create_task(engine._one(KEY))
            await asyncio.sleep(0)
            engine.leading = False
        await waiting
        return acted

    assert asyncio.run(scenario()) == []


def test_a_users_change_goes_before_what_was_merely_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> list[str]:
        engine = Engine(OperatorSettings(kubeconfig=Path("none"), leader_election=False))
        acted: list[str] = []

        class Passes:
            resting = SimpleNamespace(goes_on_s=lambda _key: None)

            async def reconcile(self, key: GroupKey, _acted: object) -> None:
                acted.append(key.name)

            def waits(self, _key: GroupKey) -> bool:
                return False

        monkeypatch.setattr(engine, "reconciler", Passes())
        engine.leading = True
        names = ["seen-0", "seen-1", "changed"]
        for name in names:
            engine._woken(GroupKey("rl", name), "pod")
        engine._woken(GroupKey("rl", "changed"), SPEC)
        taken = [await engine.queue.take() for _ in names]
        assert taken[0] is not None
        assert taken[0].name == "changed"  # first from the queue
        async with engine._turns.taken():
            others = [asyncio.create_task(engine._one(key)) for key in reversed(taken) if key is not None]
            await asyncio.sleep(0)
        await asyncio.gather(*others)
        return acted  # and first in turn, though it asked last

    assert asyncio.run(scenario())[0] == "changed"


def test_passes_that_wait_for_nothing_let_the_watches_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> int:
        engine = Engine(OperatorSettings(kubeconfig=Path("none")))
        passes = 0

        async def one(key: GroupKey) -> None:
            nonlocal passes
            passes += 1
            engine.queue.done(key, again_after_s=0.0)
            if passes == 1000:
                engine.queue.close()

        monkeypatch.setattr(engine, "_one", one)
        engine.queue.wake(KEY)
        working = asyncio.create_task(engine._work())
        reads = 0
        while not working.done():
            await asyncio.sleep(0)
            reads += 1
        return reads

    assert asyncio.run(scenario()) >= 1000
