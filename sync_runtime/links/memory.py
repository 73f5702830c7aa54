"""What was learned of links, in one JSON file, so that a restarted sidecar starts where it left off.

The file is a help, never needed: whatever is wrong with it gives an empty memory and a sentence for the log. It is read
as hostile bytes and replaced as a whole, so that a crash leaves the old or the new one.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from sync_runtime.bucket.durable import sync_folder
from sync_runtime.contract.base import Model
from sync_runtime.contract.errors import ContractError
from sync_runtime.contract.fields import DnsLabel, ListMap
from sync_runtime.contract.wire import WireModel
from sync_runtime.tuning.state import LinkState

MAX_REMEMBERED_LINKS = 256
MAX_MEMORY_BYTES = 4 * 2**20


@dataclass(frozen=True, slots=True, order=True)
class LinkKey:
    """The two ends of a directed link."""

    from_cluster: str
    from_region: str
    to_cluster: str
    to_region: str


class _RememberedLink(Model):
    from_cluster: DnsLabel = Field(description="Cluster of the sender.")
    from_region: DnsLabel = Field(description="Region of the sender.")
    to_cluster: DnsLabel = Field(description="Cluster of the receiver.")
    to_region: DnsLabel = Field(description="Region of the receiver.")
    state: LinkState = Field(description="What was learned.")


class _MemoryDocument(WireModel):
    MAX_BYTES: ClassVar[int] = MAX_MEMORY_BYTES

    format_version: Literal[1] = Field(1, description="Format of this document.")
    links: Annotated[
        list[_RememberedLink],
        Field(max_length=MAX_REMEMBERED_LINKS),
        ListMap(("fromCluster", "fromRegion", "toCluster", "toRegion")),
    ] = Field(description="One entry per link, the least recently used first.")


class LinkMemory:
    """The remembered links of one sidecar. Not thread-safe: one owner."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._states: dict[LinkKey, LinkState] = {}

    def load(self) -> str | None:
        """Read the file; gives the reason where nothing is remembered although there is a file."""
        self._states = {}
        try:
            data = _read_small_file(self._path)
            if data is None:
                return None
            document = _MemoryDocument.from_json(data)
        except (OSError, ContractError) as error:
            return f"links start without memory, {self._path} cannot be used and will be replaced: {error}"
        self._states = {_key(link): link.state for link in document.links}
        return None

    def get(self, key: LinkKey) -> LinkState | None:
        """What is remembered of a link."""
        return self._states.get(key)

    def put(self, key: LinkKey, state: LinkState) -> None:
        """Remember a link; the one not used for longest gives way."""
        self._states.pop(key, None)
        self._states[key] = state
        while len(self._states) > MAX_REMEMBERED_LINKS:
            del self._states[next(iter(self._states))]

    def save(self) -> str | None:
        """Replace the file; gives the reason where that failed. The old file stays then."""
        links = [
            _RememberedLink(
                from_cluster=key.from_cluster,
                from_region=key.from_region,
                to_cluster=key.to_cluster,
                to_region=key.to_region,
                state=state,
            )
            for key, state in self._states.items()
        ]
        try:
            _replace_file(self._path, _MemoryDocument(links=links).to_json().encode())
        except (OSError, ContractError) as error:
            return f"what was learned of links is not stored in {self._path}: {error}"
        return None


def _key(link: _RememberedLink) -> LinkKey:
    return LinkKey(link.from_cluster, link.from_region, link.to_cluster, link.to_region)


def _read_small_file(path: Path) -> bytes | None:
    """At most one byte more than the limit, which the parser then refuses; None where there is no file."""
    try:
        # Neither a link to somewhere else nor a pipe that would block for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError("it is no regular file")
        return file.read(MAX_MEMORY_BYTES + 1)


def _replace_file(path: Path, data: bytes) -> None:
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    sync_folder(path.parent)
