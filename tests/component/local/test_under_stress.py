"""Versions, switches and dying sidecars in any order: after every switch the weights are exactly the version's."""

import random
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from sync_runtime.errors import LibraryLostError, SidecarLostError
from sync_runtime.library import engines
from sync_runtime.library.publisher import Publisher
from sync_runtime.library.streams import state_chunks
from sync_runtime.library.subscriber import Subscriber
from sync_runtime.library.weights import Weights
from sync_runtime.local import messages as m
from tests.support.local import ServerThread
from tests.support.toy_sidecar import ToySidecar, digest_of, toy_sidecar

pytestmark = pytest.mark.timeout(60)
State = dict[str, torch.Tensor]
VERSIONS = 40


def small_state() -> State:
    torch.manual_seed(0)
    return {f"w{number}": torch.randn(30, 40).to(torch.bfloat16) for number in range(6)}


def train(state: State, dice: random.Random) -> None:
    for tensor in state.values():
        flat = tensor.view(torch.int16).view(-1)
        flat[dice.sample(range(flat.numel()), 20)] += dice.randrange(1, 500)


def digest(state: State) -> str:
    """As the toy sidecar takes it."""
    return digest_of(b"".join(bytes(chunk) for chunk in state_chunks(Weights(engines.attach("module", state)))))


def publish_all(publisher: Publisher, weights: State, dice: random.Random) -> None:
    for step in range(VERSIONS):
        train(weights, dice)
        time.sleep(dice.random() * 0.02)
        while True:
            try:
                publisher.publish(step=step)
                break
            except SidecarLostError:  # what users do
                continue


class Restager(threading.Thread):
    """A sidecar stages what its library lacks, again and again: after a reconnect nobody else would here."""

    def __init__(self, sidecar: ToySidecar, server: ServerThread) -> None:
        super().__init__(daemon=True)
        self._sidecar, self._server, self.stopping = sidecar, server, threading.Event()

    def run(self) -> None:
        while not self.stopping.wait(0.02):
            self._server.call(self._restage())

    async def _restage(self) -> None:
        with suppress(LibraryLostError):
            await self._sidecar.stage_newest()


@pytest.mark.parametrize("faults", [0, 12])
@pytest.mark.parametrize("seed", [1, 2])
def test_every_switch_leads_to_exactly_the_version(seed: int, faults: int, tmp_path: Path) -> None:
    dice = random.Random(seed)  # noqa: S311 a schedule, no secret
    path = str(tmp_path / "s")
    weights = small_state()
    replica = {name: tensor.clone() for name, tensor in weights.items()}
    with toy_sidecar(path) as (sidecar, server):
        publisher, subscriber = Publisher(weights, socket=path), Subscriber(replica, socket=path)
        restager = Restager(sidecar, server)
        restager.start()
        trainer = threading.Thread(target=publish_all, args=(publisher, weights, random.Random(seed)))  # noqa: S311
        trainer.start()
        switches, left, deadline = 0, faults, time.monotonic() + 50
        while trainer.is_alive() or subscriber.version != publisher.version or left:
            assert time.monotonic() < deadline
            if left and dice.random() < 0.1:
                sidecar.hang_up_on = dice.choice([m.Activate, m.Activated, m.Staged, m.Publish, m.End, m.Open])
                left -= 1
            try:
                version = subscriber.activate()
            except SidecarLostError:
                continue
            if version is not None:
                switches += 1
                assert digest(replica) == version.digest
            time.sleep(dice.random() * 0.01)
            if left and not trainer.is_alive():
                left = 0
        trainer.join()
        restager.stopping.set()
        restager.join()
        assert digest(replica) == digest(weights)
        assert switches
        publisher.close(drain=0.0)
        subscriber.close()
