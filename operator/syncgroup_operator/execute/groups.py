"""The SyncGroups as the hub's watch last showed them.

Bodies are kept as bytes and parsed when a pass needs one: a thousand parsed groups would fill the operator's memory.
Our own status writes come back through the watch; they are stored and wake nobody.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sync_runtime.contract.documents import load_stored
from sync_runtime.contract.names import GroupKey
from sync_runtime.contract.syncgroup import SyncGroup

PARSED_KEPT: Final = 64


@dataclass(frozen=True, slots=True)
class SeenGroup:
    """One SyncGroup as last seen."""

    key: GroupKey
    uid: str
    generation: int
    resource_version: str
    deleting: bool
    finalizers: tuple[str, ...]
    body: bytes


class Groups:
    """All SyncGroups of the hub that this operator watches."""

    def __init__(self) -> None:
        self._seen: dict[GroupKey, SeenGroup] = {}
        self._by_uid: dict[str, GroupKey] = {}
        self._written: dict[GroupKey, str] = {}
        self._parsed: OrderedDict[tuple[str, str], SyncGroup] = OrderedDict()

    def put(self, body: Mapping[str, Any]) -> bool:
        """Store what the watch showed; whether a pass over the group is due."""
        seen = seen_group(body)
        before = self._seen.get(seen.key)
        if before is not None and before.uid != seen.uid:
            self._by_uid.pop(before.uid, None)
        self._seen[seen.key] = seen
        self._by_uid[seen.uid] = seen.key
        if self._written.get(seen.key) == seen.resource_version:
            return False
        return before is None or before.resource_version != seen.resource_version

    def drop(self, key: GroupKey, uid: str) -> SeenGroup | None:
        """The group is gone; a namesake that came since stays."""
        seen = self._seen.get(key)
        if seen is None or seen.uid != uid:
            return None
        self._by_uid.pop(uid, None)
        self._written.pop(key, None)
        return self._seen.pop(key)

    def wrote(self, seen: SeenGroup, answer: Mapping[str, Any]) -> None:
        """Our own write of the status of `seen` was answered so: its echo wakes nobody.

        Unless somebody changed or deleted the group just before. The watch may show both in one event, ours, and
        whoever took that for an echo would never look: it must wake.
        """
        now = seen_group(answer)
        if (now.uid, now.generation, now.deleting) == (seen.uid, seen.generation, seen.deleting):
            self._written[seen.key] = now.resource_version
            self.keep(seen, answer)

    def keep(self, seen: SeenGroup, answer: Mapping[str, Any]) -> None:
        """The group as a write of ours left it, where nothing newer than `seen` was shown meanwhile.

        The watch may be faster than the answer: a deletion that it showed must not be written over by what we were told
        of the moment before, for nobody would show it again.
        """
        now = self._seen.get(seen.key)
        if now is not None and (now.uid, now.resource_version) == (seen.uid, seen.resource_version):
            self.put(answer)

    def get(self, key: GroupKey) -> SeenGroup | None:
        """One group."""
        return self._seen.get(key)

    def key_of(self, uid: str) -> GroupKey | None:
        """Which group has this uid."""
        return self._by_uid.get(uid)

    def parse(self, seen: SeenGroup) -> SyncGroup:
        """The group as a model; raises ContractError where this release cannot read it."""
        mark = (seen.uid, seen.resource_version)
        group = self._parsed.pop(mark, None)
        if group is None:
            loaded = load_stored(json.loads(seen.body)).resource
            if not isinstance(loaded, SyncGroup):  # the watch is of SyncGroups alone
                raise TypeError(f"{seen.key} is a {loaded.kind}")
            group = loaded
        self._parsed[mark] = group
        while len(self._parsed) > PARSED_KEPT:
            self._parsed.popitem(last=False)
        return group

    def __iter__(self) -> Iterator[SeenGroup]:
        return iter(tuple(self._seen.values()))

    def __len__(self) -> int:
        return len(self._seen)


def seen_group(body: Mapping[str, Any]) -> SeenGroup:
    """What is kept of a body; managed fields are the larger half of it and say nothing to us."""
    metadata = {name: value for name, value in body["metadata"].items() if name != "managedFields"}
    kept = {**body, "metadata": metadata}
    return SeenGroup(
        key=GroupKey(metadata["namespace"], metadata["name"]),
        uid=metadata["uid"],
        generation=int(metadata.get("generation") or 0),
        resource_version=str(metadata["resourceVersion"]),
        deleting=metadata.get("deletionTimestamp") is not None,
        finalizers=tuple(metadata.get("finalizers") or ()),
        body=json.dumps(kept, separators=(",", ":")).encode(),
    )
