"""The trainer's library at the desk: submits groups, takes results one by one, keeps and loads states.

One library at a time; each request is answered once, prompts and states when they are durable. Lives on the brain's
loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from functools import partial
from typing import cast

from sync_runtime.errors import LocalProtocolError, WorkError
from sync_runtime.local import work_messages as local
from sync_runtime.local.link import LibraryLink
from sync_runtime.local.messages import Message
from sync_runtime.session.work.desk import WorkDesk
from sync_runtime.work import model, state
from sync_runtime.work.ledger import Ledger
from sync_runtime.work.model import Done, Order, Prompts

HANDOVER_S, LOST_HANDOVER_S, HANDOVER_POLL_S = 1.0, 10.0, 0.01
"""A trainer that was restarted may dial before the end of the old one was seen, or while its last word is heeded."""
_LOOK_S = 0.5
"""How often a wait looks whether its library is still there."""


class WorkCounter:
    """Serves the library of a trainer."""

    def __init__(self, desk: WorkDesk) -> None:
        self._desk = desk
        self._library: LibraryLink | None = None

    async def attached(self, library: LibraryLink) -> None:
        """A library is in. One that comes right after the last one's end waits until that is over."""
        self._desk.books()  # raises where there is nothing to serve
        began_s = time.monotonic()
        while (last := self._library) is not None:
            if time.monotonic() - began_s >= (LOST_HANDOVER_S if last.is_lost else HANDOVER_S):
                raise LocalProtocolError("another process submits work: a trainer has one")
            await asyncio.sleep(HANDOVER_POLL_S)
        self._library = library

    async def message(self, library: LibraryLink, message: Message) -> None:
        """A request of the library."""
        match message:
            case local.Submit():
                await library.send(await self._submit(message))
            case local.Next():
                await library.send(await self._next(library, message))
            case local.State(consumed=consumed):
                await library.send(await self._state(consumed))
            case local.Load(payload=payload):
                await library.send(await self._load(payload))
            case _:
                raise LocalProtocolError(f"a trainer's work does not send {type(message).__name__}")

    async def data(self, library: LibraryLink, data: memoryview) -> None:
        """There are no streams here."""
        raise LocalProtocolError("work is sent in messages, not as a stream")

    async def detached(self, library: LibraryLink, reason: str) -> None:
        """The library is gone; the ledger stays."""
        if library is self._library:
            self._library = None

    async def _submit(self, message: local.Submit) -> local.Submitted:
        books = self._desk.books()
        groups = list(_cut(message))
        async with books.turn:
            changes = [*books.ledger.set_order(cast("Order", message.order)), *books.ledger.submit(groups)]
            self._desk.look(books, changes)
        await books.durable()
        added = sum(isinstance(change, model.Submitted) for change in changes)
        return local.Submitted(added, books.ledger.pending)

    async def _next(self, library: LibraryLink, message: local.Next) -> local.Result:
        books = self._desk.books()
        async with books.turn:
            changes = [
                *books.ledger.set_order(cast("Order", message.order)),
                *_consumed(books.ledger, message.consumed),
            ]
            self._desk.look(books, changes)
        end_s = time.monotonic() + message.wait_ms / 1000
        while message.wait_ms:
            self._desk.news.clear()
            done = books.ledger.deliverable()
            if done is not None:
                return _result(books.ledger, done)
            rest_s = end_s - time.monotonic()
            if rest_s <= 0 or not books.ledger.pending or library.is_lost:
                break
            try:
                async with asyncio.timeout(min(rest_s, _LOOK_S)):
                    await self._desk.news.wait()
            except TimeoutError:
                continue
        return local.Result(None, "", 0, "", None, 0, None, books.ledger.pending, b"")

    async def _state(self, consumed: int | None) -> local.Stated:
        books = self._desk.books()
        async with books.turn:
            self._desk.look(books, _consumed(books.ledger, consumed))
            return local.Stated(await asyncio.to_thread(state.to_json, books.ledger))

    async def _load(self, payload: bytes) -> local.Loaded:
        books = self._desk.books()
        before = await books.replace(partial(_loaded, payload))
        async with books.turn:
            self._desk.rolled_back(before)
            self._desk.look(books)
        return local.Loaded(books.ledger.pending)


def _loaded(payload: bytes, before: Ledger) -> Ledger:
    """The ledger of a state in place of another; of no state: an empty one."""
    if payload:
        return state.from_json(payload, before, time.monotonic())
    made = before.successor()
    for change in made.begin():
        made.apply(change, time.monotonic())
    return made


def _consumed(ledger: Ledger, number: int | None) -> list[model.Change]:
    return [] if number is None else ledger.consume(number)


def _cut(message: local.Submit) -> Iterator[Prompts]:
    """The groups of a message, with their parts of its payload."""
    if sum(one.bytes for one in message.groups) != len(message.payload):
        raise WorkError("the prompts do not have the sizes that their groups name")
    at = 0
    for one in message.groups:
        yield Prompts(one.id, one.samples, message.payload[at : at + one.bytes])
        at += one.bytes


def _result(ledger: Ledger, done: Done) -> local.Result:
    group, version = ledger.group(done.number), done.version
    named = None
    if version is not None:
        named = local.VersionName(version.lineage, version.seq, version.digest, version.step)
    return local.Result(
        done.number, group.id, group.samples, done.worker, named, done.tokens, done.failed, ledger.pending, done.payload
    )
