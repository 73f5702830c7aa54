"""Work: the trainer's end of work leases. Prompt groups go in, results come out, once each.

A client of its own sidecar, beside the publisher; needs neither torch nor numpy.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Literal, Self, cast

from sync_runtime.errors import WorkError, WorkTimeoutError
from sync_runtime.library.settings import LibrarySettings
from sync_runtime.library.version import Version
from sync_runtime.library.work_client import FOREVER_S, WorkClient
from sync_runtime.local import work_messages as local

Order = Literal["throughput", "fixed"]
PATIENCE_S: Final = 60.0
BATCH_GROUPS: Final = 1024
BATCH_BYTES: Final = 16 << 20
_POLL_S: Final = 0.25
"""How long one request waits; another thread that submits waits for it."""


@dataclass(frozen=True)
class PromptGroup:
    """Prompts that one worker answers together."""

    id: str
    """1 to 128 printable ASCII characters; names it until its result is consumed."""
    payload: bytes
    """Whatever the workers understand; JSON, for instance. Never looked into."""
    samples: int = 1
    """How many answers are wanted; handed on to the worker."""


@dataclass(frozen=True)
class WorkResult:
    """What became of a prompt group."""

    id: str
    payload: bytes
    samples: int
    worker: str
    """The member that did it, or that had it last."""
    version: Version | None
    """Under which weights it was done; None where it failed."""
    tokens: int
    failed: str | None
    """Why nobody could do it, after all attempts; else None."""
    delivery: int
    """Its number in the ledger."""


class Work:
    """Leases prompt groups to the workers of the group, and delivers their results.

        with Publisher(model) as publisher, Work() as work:
            for step in range(steps):
                work.submit(PromptGroup(f"{step}-{n}", prompt, samples=8) for n, prompt in enumerate(prompts))
                batch = list(work.results())
                train(model, batch)
                publisher.publish(step=step)
                work.commit()
                save(model, work.state_dict())

    Groups and results are durable in the sidecar: nothing is lost when either process dies. A result is *consumed* when
    the next one is asked for, or by `commit`; until then it is delivered again to whoever asks. `state_dict` holds
    what is not consumed: put it into the checkpoint that holds what was, and load it when training starts from there.

    Args:
        socket: the sidecar's socket; by default what `SYNCGROUP_SOCKET` says, else its place in every pod.
        order: `"throughput"`: results as they come, from workers at most `maxStaleness` versions behind. `"fixed"`:
            groups go out and results come in in the order of submission, under the newest version alone; with a trainer
            that takes all results before it publishes again, batches do not depend on network or workers.
        timeout: seconds to wait for a sidecar when opening.
    """

    def __init__(self, *, socket: str | None = None, order: Order = "throughput", timeout: float = 60.0) -> None:
        if order not in ("throughput", "fixed"):
            raise WorkError(f"the order is {order!r}; it must be throughput or fixed")
        self._order = order
        self._client = WorkClient(LibrarySettings.read(socket), "work")
        self._delivered: int | None = None
        self._client.open(timeout)
        opened = False
        try:
            _ = self.pending  # a sidecar that has another trainer, or no work leases, says so here
            opened = True
        finally:
            if not opened:
                self._client.close()

    def submit(self, groups: Iterable[PromptGroup]) -> int:
        """Queues groups and returns how many were new, once all are durable.

        A group whose id the ledger holds already is left as it is: submitting again after an error is safe. Raises
        `WorkFullError` where too much is open: consume results first.
        """
        added = 0
        for batch in _batches(groups):
            entries = tuple(local.GroupEntry(one.id, one.samples, len(one.payload)) for one in batch)
            request = local.Submit(self._order, entries, b"".join(one.payload for one in batch))
            added += self._client.ask(request, local.Submitted, PATIENCE_S).added
        return added

    def results(self, timeout: float | None = None) -> Results:
        """Results, one after the other, for `for` and `async for`; ends when no group is open any more.

        Raises `WorkTimeoutError` (a `TimeoutError`) where none comes for `timeout` seconds. While the sidecar is away
        it waits for it.
        """
        return Results(self, timeout)

    def results_async(self, timeout: float | None = None) -> Results:
        """The same object as `results` gives, for those who like the name."""
        return self.results(timeout)

    def commit(self) -> None:
        """The result that came last counts as consumed."""
        if self._delivered is not None:
            self._client.ask(local.Next(self._order, self._delivered, 0), local.Result, PATIENCE_S)

    @property
    def pending(self) -> int:
        """Groups that are not consumed."""
        return self._client.ask(local.Next(self._order, None, 0), local.Result, PATIENCE_S).pending

    def state_dict(self) -> dict[str, Any]:
        """Everything that is not consumed, as a dict that JSON and `torch.save` can hold.

        Call `commit` before, if what you save was trained on the result that came last.
        """
        stated = self._client.ask(local.State(None), local.Stated, PATIENCE_S)
        return cast("dict[str, Any]", json.loads(stated.payload))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Puts the ledger where it was when the state was taken, and nowhere else.

        What was consumed since is delivered, or handed out, again; what workers do now is refused.
        """
        try:
            payload = json.dumps(state, separators=(",", ":"), allow_nan=False).encode()
        except (TypeError, ValueError) as error:
            raise WorkError(f"this is no state of a work ledger: {error}") from error
        self._load(payload)

    def clear(self) -> None:
        """Forgets all groups and results: training starts from its first weights."""
        self._load(b"")

    def close(self) -> None:
        """Hangs up; the ledger stays in the sidecar."""
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _load(self, payload: bytes) -> None:
        self._client.ask(local.Load(payload), local.Loaded, PATIENCE_S)
        self._delivered = None

    def fetch(self, timeout: float | None) -> WorkResult | None:
        """The next result, without a note that it was delivered; None: nothing is open."""
        end_s = time.monotonic() + (FOREVER_S if timeout is None else timeout)
        while True:
            rest_s = max(0.0, end_s - time.monotonic())
            request = local.Next(self._order, self._delivered, max(1, int(min(rest_s, _POLL_S) * 1000)))
            found = self._client.ask(request, local.Result, rest_s, wait_s=_POLL_S)
            if found.delivery is not None:
                return _result(found, found.delivery)
            if not found.pending:
                return None
            if time.monotonic() >= end_s:
                raise WorkTimeoutError(f"no result came for {timeout:.3g} s; {found.pending} groups are open")

    def delivered(self, result: WorkResult) -> None:
        """The user has it."""
        self._delivered = result.delivery


class Results:
    """Results of a `Work`, iterable both ways. A result that was awaited in vain comes again."""

    def __init__(self, work: Work, timeout: float | None) -> None:
        self._work, self._timeout = work, timeout

    def __iter__(self) -> Iterator[WorkResult]:
        return self

    def __next__(self) -> WorkResult:
        result = self._work.fetch(self._timeout)
        if result is None:
            raise StopIteration
        self._work.delivered(result)
        return result

    def __aiter__(self) -> AsyncIterator[WorkResult]:
        return self

    async def __anext__(self) -> WorkResult:
        result = await asyncio.to_thread(self._work.fetch, self._timeout)
        if result is None:
            raise StopAsyncIteration
        self._work.delivered(result)
        return result


def _batches(groups: Iterable[PromptGroup]) -> Iterator[list[PromptGroup]]:
    batch: list[PromptGroup] = []
    size_bytes = 0
    for one in groups:
        if not isinstance(one.payload, bytes):
            raise WorkError(f"the payload of group {one.id} is no bytes: encode it, as JSON for instance")
        if batch and (len(batch) >= BATCH_GROUPS or size_bytes + len(one.payload) > BATCH_BYTES):
            yield batch
            batch, size_bytes = [], 0
        batch.append(one)
        size_bytes += len(one.payload)
    if batch:
        yield batch


def _result(found: local.Result, delivery: int) -> WorkResult:
    named = found.version
    version = None if named is None else Version(named.lineage, named.seq, named.digest, named.step)
    return WorkResult(
        found.id, found.payload, found.samples, found.worker, version, found.tokens, found.failed, delivery
    )
