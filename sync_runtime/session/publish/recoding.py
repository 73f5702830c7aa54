"""The `tight` object of a version that the library codes itself: asked for when the version is durable, for slow links.

The library has the base and the lists at hand until its next version, so it is asked at once, and once. A failure costs
only those bytes. Nothing is decoded here: the object must be of the same changes as the `fast` one by all totals.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

from sync_runtime.bucket.keys import TIGHT, ObjectKey
from sync_runtime.bucket.manifest import Manifest, pack_envelope
from sync_runtime.bucket.spool import ObjectWriter
from sync_runtime.errors import LocalProtocolError, SyncError
from sync_runtime.local.link import Library
from sync_runtime.local.messages import RECODES_SINCE, Published, Totals
from sync_runtime.session.publish.context import Standing, TrainerContext
from sync_runtime.session.publish.writing import begin_message
from sync_runtime.session.relay import Shelved

_log = logging.getLogger(__name__)


def can_recode(library: Library | None) -> bool:
    """Whether a library knows what it is asked for."""
    return library is not None and library.hello.coder == "library" and max(library.hello.protocols) >= RECODES_SINCE


class Recoding:
    """One object on its way."""

    def __init__(self, context: TrainerContext, fast: Manifest, writer: ObjectWriter) -> None:
        """Use `begin`."""
        self._context, self._fast, self._writer = context, fast, writer
        self.is_arriving = False
        """Whether the stream that is coming in is this object's."""

    @classmethod
    async def begin(
        cls, context: TrainerContext, before: Standing, fast_key: ObjectKey, fast: Manifest, trace: str
    ) -> Recoding | None:
        """Takes room in the spool for what was promised to the children; None: there is none."""
        key, layout = replace(fast_key, codec=TIGHT), before.layout
        size_bytes, streams = context.bucket_bytes(), context.streams()
        try:
            writer = await asyncio.to_thread(context.spool.create, key, layout.hash.hex(), size_bytes, streams=streams)
        except SyncError as error:
            _log.warning("%s is not made, members get the fast object: %s", key, error)
            context.distributor.aborted(key, "Failed")
            return None
        context.distributor.begun(Shelved(key, begin_message(context, before, key, trace), writer))
        return cls(context, fast, writer)

    async def take(self, data: memoryview) -> None:
        """The next bytes."""
        for kept in await asyncio.to_thread(self._writer.write, bytes(data)):
            self._context.distributor.bucket(self._writer.key, kept.index)

    async def finish(self, totals: Totals | None) -> Published:
        """All of it has come: durable, then onward. Raises SyncError."""
        self.is_arriving = False
        context, fast, writer = self._context, self._fast, self._writer
        changes = "".join(map(str, fast.digest_changes))
        if totals != Totals(TIGHT, fast.num_blocks, fast.num_changed, str(fast.target.digest), changes):
            raise LocalProtocolError("the tight object is of other changes than the fast one of its version")
        await asyncio.to_thread(writer.finish)
        for index in range(len(writer.buckets)):
            context.distributor.bucket(writer.key, index)
        manifest = replace(fast, codec=TIGHT, buckets=writer.buckets)
        document = manifest.to_json()
        envelope = pack_envelope(document, context.sign(document))
        await asyncio.to_thread(writer.commit, envelope)
        context.distributor.completed(writer.key, envelope)
        context.distributor.stored(writer.key)
        digest = str(fast.target.digest)
        return Published(fast.lineage, fast.target.seq, digest, fast.num_changed, manifest.size_bytes, {})

    async def abort(self, reason: str) -> None:
        """Nothing of it stays; the children get the `fast` object."""
        _log.warning("%s was not made, members get the fast object: %s", self._writer.key, reason)
        await asyncio.to_thread(self._writer.abort)
        self._context.distributor.aborted(self._writer.key, "Failed")
