"""A rank of somebody's engine that follows a trainer: opens its sidecar, stages in the background, switches when told.

All ranks of an engine make every call at the same moment, and all of them succeed or none does: whoever fails tells the
others before anybody waits for it. Knows no engine by name; what an engine does with an error is its plug-in's affair.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from typing import NamedTuple, TypeVar

import torch

from sync_runtime.errors import LocalError, SyncError
from sync_runtime.library.engines.contents import Read
from sync_runtime.library.engines.flushing import FlushingCoder
from sync_runtime.library.engines.loadplan import Plan, make_plan
from sync_runtime.library.engines.mapped import Content, MappedEngine, Ranks, Reload
from sync_runtime.library.engines.recording import record, state_of
from sync_runtime.library.settings import LibrarySettings, SubscribeOptions
from sync_runtime.library.subscriber import SCRUB_TIMEOUT_S, make_session
from sync_runtime.library.subscribing import SubscribeSession
from sync_runtime.library.version import Version
from sync_runtime.local.messages import Coder
from sync_runtime.tensors import layout as layouts

T = TypeVar("T")
FAILURES = (
    SyncError, ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, MemoryError, OSError,
    RuntimeError, TypeError, ValueError,
)  # fmt: skip
"""What engines, torch and we raise: a rank that meets one of these says so to the others."""


class Opening(NamedTuple):
    """How a sidecar is found, and how long is waited for it."""

    socket: str | None = None
    """By default what `SYNCGROUP_SOCKET` says, else its place in every pod."""
    coder: Coder | None = None
    timeout_s: float = 60.0
    patience_s: float = 5.0
    """For its leave to switch."""
    auto_scrub: bool | None = None


class Follower:
    """One rank's end."""

    def __init__(self, engine: MappedEngine, opening: Opening, ranks: Ranks) -> None:
        """Opens; raises SyncError in every rank where it fails in one."""
        self._engine, self._ranks, self._patience_s = engine, ranks, opening.patience_s
        self._is_mixed = False
        """Whether ranks have different versions, since one of them could not do its part of a switch."""
        options = SubscribeOptions(
            opening.coder, opening.auto_scrub, ranks.number, ranks.count, opening.timeout_s, opening.patience_s
        )
        self._session: SubscribeSession = agreed(
            ranks,
            lambda: make_session(
                engine, options, LibrarySettings.read(opening.socket), lambda coder: FlushingCoder(coder, engine)
            ),
        )
        agreed(ranks, lambda: self._session.open(opening.timeout_s), undo=self._session.close)

    @property
    def version(self) -> Version | None:
        """What the weights of all ranks are; None: no version, or half of one, in this rank or another."""
        return None if self._is_mixed else self._session.version

    @property
    def session(self) -> SubscribeSession:
        """For whoever wants to know what is staged."""
        return self._session

    def update(self, seq: int | None = None, timeout_s: float = 0.0, *, scrub: bool = False) -> None:
        """Switches to the newest staged version, in all ranks or in none.

        Args:
            seq: the oldest version that will do; by default whatever is staged, also nothing.
            timeout_s: how long to wait for it.
            scrub: whether all weights are compared with the version afterwards.
        """
        agreed(self._ranks, lambda: self._find(seq, timeout_s))
        try:
            agreed(self._ranks, lambda: self._switch(seq))
        except FAILURES:
            self._compare()
            raise
        self._compare()
        if scrub:
            agreed(self._ranks, self._engine.tensors)  # a rank that cannot read its weights would keep others waiting
            agreed(self._ranks, self._scrub)

    def close(self) -> None:
        """Hangs up; the weights stay as they are."""
        self._session.close()

    def _find(self, seq: int | None, timeout_s: float) -> None:
        if seq is not None and self._session.wait(seq, timeout_s) is None:
            raise LocalError(f"version {seq} is not staged yet, and nothing was changed: ask again later")

    def _compare(self) -> None:
        """Whether all ranks have the same version: one that failed after leave was given has half of it."""
        mine = self._session.version
        number = -1 if mine is None else int(mine.digest[:15], 16)
        told = self._ranks.gather(torch.tensor([number], dtype=torch.int64))
        self._is_mixed = len({int(one[0]) for one in told}) > 1

    def _scrub(self) -> None:
        if not self._session.scrub(SCRUB_TIMEOUT_S):
            raise LocalError("the weights are not what their version says; a repair is on its way: update again")

    def _switch(self, seq: int | None) -> None:
        self._session.activate(self._patience_s)
        live = self._session.version
        if seq is not None and (live is None or live.seq < seq):
            here = "no version" if live is None else f"version {live.seq}"
            raise LocalError(f"version {seq} could not be switched to, the weights are {here}: ask again later")


def map_engine(
    model: torch.nn.Module, content: Content, read: Read, ranks: Ranks, *, repacked: Collection[str],
    loading: Callable[[], AbstractContextManager[None]], reload: Reload,
) -> MappedEngine:  # fmt: skip
    """A rank's model under canonical names; raises LayoutError, in every rank, for one that cannot be followed.

    Args:
        model: with the loader `load_weights`.
        content: what the trainer publishes.
        read: first elements of what the model's memory does not show.
        ranks: who holds the weights together.
        repacked: modules whose memory is not, or may not be, as their loader filled it.
        loading: repacked modules as their loader wants them, for as long as it is followed.
        reload: loads repacked modules again.
    """

    def plan() -> Plan:
        with loading():
            recording = record(model, model.load_weights, content.wanted)  # type: ignore[arg-type]
        return make_plan(
            recording,
            content.wanted,
            {name: tensor.dtype for name, tensor in state_of(model)},
            repacked=repacked,
            whole_below=layouts.SMALL_ELEMENTS if ranks.count > 1 else layouts.MAX_TENSOR_ELEMENTS + 1,
        )

    planned = agreed(ranks, plan)
    return agreed(ranks, lambda: MappedEngine(model, planned, content, ranks=ranks, reload=reload, stored=read))


def agreed(ranks: Ranks, call: Callable[[], T], undo: Callable[[], None] = lambda: None) -> T:
    """What a call returns that every rank makes; where it fails in one, it fails in all, and `undo` is called."""
    if ranks.count == 1:
        try:
            return call()
        except FAILURES:
            undo()
            raise
    failure: Exception | None = None
    found: list[T] = []
    try:
        found.append(call())
    except FAILURES as error:
        failure = error
    told = ranks.gather(torch.tensor([int(failure is not None)], dtype=torch.int64))
    if failure is not None:
        undo()
        raise failure
    failed = [number for number, one in enumerate(told) if int(one[0])]
    if failed:
        undo()
        raise LocalError(f"rank {failed[0]} of {ranks.count} could not do its part; its log says why")
    return found[0]
