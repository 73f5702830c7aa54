"""The same delta once more in fewer bytes, for slow links, while training goes on. Its failure costs only those bytes.

One at a time: a version that comes while the last one is still being coded goes out as `fast` alone, so that `publish`
never waits for a codec.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

from sync_runtime.bucket.keys import TIGHT, ObjectKey
from sync_runtime.bucket.manifest import pack_envelope
from sync_runtime.bucket.spool import ObjectWriter
from sync_runtime.errors import SyncError
from sync_runtime.offline.staging import Comparison
from sync_runtime.session.mirror import Mirror
from sync_runtime.session.publish.context import Standing, TrainerContext
from sync_runtime.session.publish.writing import begin_message, code_diff
from sync_runtime.session.relay import Shelved
from sync_runtime.tensors.blocks import BlockMap

_log = logging.getLogger(__name__)


class TightCoder:
    """Codes `tight` objects beside the `fast` ones."""

    def __init__(self, context: TrainerContext) -> None:
        self._context = context
        self._task: asyncio.Task[None] | None = None

    @property
    def is_busy(self) -> bool:
        """Whether one is being coded."""
        return self._task is not None

    def would_help(self) -> bool:
        """Whether a child would rather have one, and it can be made at once."""
        return self._task is None and self._context.distributor.wants_codec(TIGHT)

    def start(self, fast: ObjectKey, before: Standing, new: Mirror, label: str, trace: str) -> None:
        """Begins; the mirror that `before` stands on is removed at the end."""
        key = replace(fast, codec=TIGHT)
        self._task = asyncio.create_task(self._run(key, before, new, label, trace))

    async def close(self) -> None:
        """Gives up what is being coded; its thread ends by itself."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self, key: ObjectKey, before: Standing, new: Mirror, label: str, trace: str) -> None:
        context, old = self._context, before.mirror
        writer: ObjectWriter | None = None
        done = False
        try:
            if old is None:
                return
            size_bytes, streams = context.bucket_bytes(), context.streams()
            layout_hash = before.layout.hash.hex()
            writer = await asyncio.to_thread(context.spool.create, key, layout_hash, size_bytes, streams=streams)
            context.distributor.begun(Shelved(key, begin_message(context, before, key, trace), writer))
            pair = Comparison(BlockMap(old.layout), old.bound(), new.bound())
            manifest = await code_diff(context, writer, pair, before.position.seq, label=label)
            document = manifest.to_json()
            envelope = pack_envelope(document, context.sign(document))
            await asyncio.to_thread(writer.commit, envelope)
            context.distributor.completed(key, envelope)
            context.distributor.stored(key)
            done = True
        except SyncError as error:
            _log.warning("%s was not made, members get the fast object: %s", key, error)
        finally:
            self._task = None
            if not done:
                if writer is not None:
                    writer.abort()
                context.distributor.aborted(key, "Failed")
            if old is not None:
                old.remove()
