"""A foreign delta as the converters see it: names, and what each tensor becomes. Knows no format and no file.

Readers check everything that can be checked without the weights when they open; the rest when a tensor is asked for.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import ClassVar, NamedTuple

from sync_runtime.errors import LayoutError
from sync_runtime.tensors.bits import BitTensor
from sync_runtime.tensors.layout import Layout

NOTHING_CHECKED = "nothing: the format has no checksum"
_KEPT_TENSORS = 2
"""As many as a checkpoint keeps: blocks of neighbouring tensors may be in work at the same time."""


class Origin(NamedTuple):
    """What a foreign delta says about itself."""

    variant: str
    label: str
    """A remark for the delta that is made of it."""
    checked: str
    """What its own checksums cover, in words."""
    seqs: tuple[int, int] = (0, 1)


class Foreign(ABC):
    """A delta of another tool."""

    origin: Origin
    names: frozenset[str]
    """The tensors it speaks of. All others stay as they are."""
    lists_all: ClassVar[bool] = False
    """Whether the format names every tensor, changed or not: one that is missing is then another model's."""

    @abstractmethod
    def patched(self, name: str, old: BitTensor) -> BitTensor:
        """What a tensor becomes, in memory of its own; raises where bytes, base or checksum do not fit."""

    def check_base(self, tensors: Iterator[tuple[str, BitTensor]]) -> None:
        """Checks whether a base is the one that the delta names, by ascending name. Most formats name none."""
        del tensors

    def check_state(self, tensors: Iterator[tuple[str, BitTensor]]) -> None:
        """Checks a checksum over the whole new state, by ascending name. Most formats have none."""
        del tensors


class PatchedState(Mapping[int, BitTensor]):
    """A base under a foreign delta: tensors are made when asked for and let go soon after."""

    def __init__(self, base: Mapping[int, BitTensor], layout: Layout, foreign: Foreign) -> None:
        names = {spec.name for spec in layout.tensors}
        unknown, missing = sorted(foreign.names - names), sorted(names - foreign.names)
        if unknown:
            raise LayoutError(f"the delta names a tensor {unknown[0]!r} that the base does not have")
        if missing and foreign.lists_all:
            raise LayoutError(f"the delta does not name {missing[0]!r} of the base, and its format names every tensor")
        self._base, self._layout, self._foreign = base, layout, foreign
        self._kept: OrderedDict[int, BitTensor] = OrderedDict()
        self._lock = threading.Lock()

    def __getitem__(self, at: int) -> BitTensor:
        name = self._layout.tensors[at].name
        if name not in self._foreign.names:
            return self._base[at]
        with self._lock:
            found = self._kept.get(at)
            if found is None:
                found = self._kept[at] = self._foreign.patched(name, self._base[at])
                while len(self._kept) > _KEPT_TENSORS:
                    self._kept.popitem(last=False)
            return found

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self._layout.tensors)))

    def __len__(self) -> int:
        return len(self._layout.tensors)
