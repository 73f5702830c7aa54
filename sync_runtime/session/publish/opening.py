"""OPEN of a publisher: takes the layout and perhaps the state in, and finds the version that it goes on from.

With weights, their full digest tells. Without (`resume`), the version that both ends had: this sidecar's own, or after
its restart the newest one in the spool, if a mirror that its predecessor left proves to be that version.
"""

from __future__ import annotations

import asyncio

from sync_runtime.errors import LocalProtocolError, WrongBaseError
from sync_runtime.local.messages import Open
from sync_runtime.session.lineage import Position, newest_position, open_position
from sync_runtime.session.mirror import Mirror, adopt
from sync_runtime.session.publish.context import Standing, TrainerContext
from sync_runtime.tensors.digest import parse_digest
from sync_runtime.tensors.layout import Layout, parse_layout

_WITH_WEIGHTS = "open with the weights"


class Opening:
    """One OPEN, from its first byte to its answer."""

    def __init__(self, context: TrainerContext, message: Open, *, sidecar_codes: bool) -> None:
        self._context, self._message = context, message
        self._sidecar_codes = sidecar_codes
        self._document = bytearray()
        self._layout: Layout | None = None
        self._state: Mirror | None = None

    def take(self, data: memoryview) -> None:
        """The next bytes: the layout's document, behind it the state."""
        missing = self._message.layout_bytes - len(self._document)
        self._document += data[:missing]
        if self._layout is None and len(self._document) == self._message.layout_bytes:
            self._layout = parse_layout(bytes(self._document))
            if self._message.state:
                self._state = Mirror.create(self._context.mirrors, self._layout)
        if len(data) > missing:
            if self._state is None:
                raise LocalProtocolError("bytes of a state came where none was announced")
            # A copy into mapped pages: short enough for the loop.
            self._state.append(data[missing:])

    async def finish(self, before: Standing | None) -> Standing:
        """Where the publisher stands; `before` is where the last one stood."""
        if self._layout is None:
            raise LocalProtocolError("OPEN ended before the layout was complete")
        if self._message.resume:
            return await self._resumed(self._layout, before)
        if self._sidecar_codes and self._state is None:
            raise LocalProtocolError("a publisher that codes nothing must open with its state")
        position = await self._found(self._layout)
        standing = Standing(position, self._layout, self._state, step_of(self._context, position))
        self._state = None
        return standing

    def drop(self) -> None:
        """It failed, or the library is gone: nothing stays."""
        if self._state is not None:
            self._state.remove()
            self._state = None

    async def _found(self, layout: Layout) -> Position:
        context = self._context
        if self._state is not None:
            digest = await asyncio.to_thread(self._state.digest)
        elif len(self._message.digests) == 1:
            digest = parse_digest(self._message.digests[0])
        else:
            raise LocalProtocolError("OPEN without a state must carry the digest of the live weights")
        layout_hash = await asyncio.to_thread(context.spool.put_layout, layout.document)
        fence = context.versions.fence
        return await asyncio.to_thread(open_position, context.spool, fence, context.group_uid, digest, layout_hash)

    async def _resumed(self, layout: Layout, before: Standing | None) -> Standing:
        standing = before
        if standing is None or standing.layout.hash != layout.hash or (self._sidecar_codes and not standing.mirror):
            standing = await asyncio.to_thread(self._recalled, layout)
        known = {str(standing.position.digest)}
        if self._sidecar_codes and standing.digest_before is not None:
            known.add(standing.digest_before)
        if not known & set(self._message.digests):
            if standing is not before and standing.mirror is not None:
                standing.mirror.remove()
            raise WrongBaseError(f"the publisher stands on another version than this sidecar: {_WITH_WEIGHTS}")
        return standing

    def _recalled(self, layout: Layout) -> Standing:
        """What the spool tells after this sidecar's restart."""
        context = self._context
        position = newest_position(context.spool, layout.hash.hex())
        if position is None:
            raise WrongBaseError(f"this sidecar does not hold the version to go on from: {_WITH_WEIGHTS}")
        mirror = adopt(context.mirrors, layout, position.digest) if self._sidecar_codes else None
        if self._sidecar_codes and mirror is None:
            raise WrongBaseError(f"this sidecar has no mirror of that version: {_WITH_WEIGHTS}")
        earlier = position.record.digests.get(position.seq - 1)
        before = None if earlier is None else str(earlier)
        return Standing(position, layout, mirror, step_of(context, position), before)


def step_of(context: TrainerContext, position: Position) -> int | None:
    """The user's number of a version, where its label is one."""
    origin = position.record.origin
    places = [(position.lineage, position.seq), *([] if origin is None else [(origin.lineage, origin.seq)])]
    for lineage, seq in places:
        record = context.spool.versions(lineage).get(seq)
        if record is not None and record.label.isdecimal() and len(record.label) < 16:
            return int(record.label)
    return None
