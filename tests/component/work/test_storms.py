"""Any schedule of cuts, deaths, switches, rollbacks and expiries: every group is consumed once, under its version."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path

import pytest

from sync_runtime.local.work_messages import Next, State
from sync_runtime.session.work import desk as desk_module
from sync_runtime.session.work import worker as worker_module
from sync_runtime.session.work.counter import WorkCounter
from sync_runtime.work.model import Order, Prompts
from tests.component.work.storms import Storm, Worker
from tests.unit.work.ledgers import LINEAGE, OTHER_LINEAGE

STEPS = 250


class Trainer:
    """What the trainer's process believes, with its checkpoints."""

    def __init__(self, storm: Storm, order: Order) -> None:
        self.storm, self.order = storm, order
        self.submitted: list[str] = []
        self.consumed: list[str] = []
        self.checkpoints: list[tuple[bytes, list[str], list[str]]] = []
        self.next_id = 0

    @property
    def counter(self) -> WorkCounter:
        return WorkCounter(self.storm.desk)

    async def submit(self, count: int) -> None:
        books = self.storm.desk.books()
        ids = [f"g{self.next_id + at}" for at in range(count)]
        self.next_id += count
        async with books.turn:
            changes = [
                *books.ledger.set_order(self.order),
                *books.ledger.submit([Prompts(one, 1, b"p") for one in ids]),
            ]
            self.storm.desk.look(books, changes)
        self.submitted += ids

    async def consume(self) -> bool:
        result = await self.counter._next(_Present(), Next(self.order, None, 1))  # type: ignore[arg-type]
        if result.delivery is None:
            return False
        await self.counter._next(_Present(), Next(self.order, result.delivery, 0))  # type: ignore[arg-type]
        assert result.id not in self.consumed, "delivered after it was consumed"
        assert result.version is not None, result.failed
        assert result.payload.decode() == f"{result.id} {result.version.digest}"
        self.consumed.append(result.id)
        return True

    async def checkpoint(self) -> None:
        stated = await self.counter._state(State(None).consumed)
        self.checkpoints.append((stated.payload, list(self.submitted), list(self.consumed)))

    async def roll_back(self) -> None:
        if self.checkpoints:
            at = self.storm.dice.randrange(len(self.checkpoints))
            del self.checkpoints[at + 1 :]
            state, submitted, consumed = self.checkpoints[at]
            await self.counter._load(state)
            self.submitted, self.consumed = list(submitted), list(consumed)


class _Present:
    """A library that is there."""

    is_lost = False


async def happen(storm: Storm, trainer: Trainer) -> None:
    """Something, by the dice."""
    dice = storm.dice
    worker: Worker = dice.choice(storm.workers)
    if dice.random() < 0.15:
        await happen_to_trainer(storm, trainer)
        return
    match dice.choices(range(7), (30, 12, 12, 6, 4, 4, 1))[0]:
        case 0:
            worker.deliver()
        case 1:
            await worker.take()
        case 2:
            if worker.held:
                worker.complete(dice.randrange(len(worker.held)))
        case 3:
            worker.activate()
        case 4:
            worker.connect()
        case 5:
            worker.cut(dice.choice(("Lost", "Silent", "ShuttingDown")))
        case _:
            worker.die()


async def happen_to_trainer(storm: Storm, trainer: Trainer) -> None:
    """Something at the trainer."""
    match storm.dice.choices(range(6), (3, 1, 6, 1, 1, 1))[0]:
        case 0:
            storm.publish(1)
        case 1:
            storm.publish(0, OTHER_LINEAGE if storm.head.lineage == LINEAGE else LINEAGE)
        case 2:
            await trainer.consume()
        case 3:
            storm.restart()
        case 4:
            await trainer.checkpoint()
        case _:
            await trainer.roll_back()


async def calm(storm: Storm, trainer: Trainer) -> None:
    """Everybody is there and works until nothing is open. Leases last: on a busy machine a round takes longer than one
    of the storm's, and everything would expire again and again."""
    storm.policy = replace(storm.policy, lease_s=600.0)
    end_s = time.monotonic() + 10
    for worker in storm.workers:
        worker.connect()
        worker.activate()
    while storm.desk.books().ledger.pending:
        assert time.monotonic() < end_s, "something is stuck"
        for worker in storm.workers:
            while worker.deliver():
                pass
            await asyncio.sleep(0.001)
            await worker.take()
            while worker.held:
                worker.complete(0)
        await trainer.consume()
        await storm.desk.tick()


@pytest.mark.parametrize("order", ["throughput", "fixed"])
@pytest.mark.parametrize("seed", range(8))
def test_every_group_is_consumed_once_whatever_happens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, order: Order
) -> None:
    monkeypatch.setattr(desk_module, "GRACE_S", 0.02)
    monkeypatch.setattr(worker_module, "RESEND_S", 0.01)

    async def run() -> None:
        storm = Storm(tmp_path, seed)
        trainer = Trainer(storm, order)
        for step in range(STEPS):
            if step % 25 == 0:
                await trainer.submit(storm.dice.randint(1, 5))
            await happen(storm, trainer)
            await asyncio.sleep(0)
        await calm(storm, trainer)
        assert sorted(trainer.consumed) == sorted(trainer.submitted)
        assert len(set(trainer.consumed)) == len(trainer.consumed)
        if order == "fixed":
            assert trainer.consumed == trainer.submitted
        await storm.close()

    asyncio.run(run())
