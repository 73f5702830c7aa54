"""The redo list on the device: several deltas, one after the other, fold into one list; then one scatter.

    lists = decoder.decode(data, staging.overlays())       # against live weights plus what is staged
    staging.add(lists, promised)                           # folded and checked; nothing is kept where it is wrong
    staging.commit()                                       # in the pause: absolute bits, so it may be repeated

Equal to `delta.apply.Staging` on the CPU, entry by entry. Live tensors are only read before `commit`. Knows nothing of
codecs: it is handed lists.
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from sync_runtime.delta.apply import check_digest_changes
from sync_runtime.delta.kernels.scrub import commit, list_digest, tensor_digests
from sync_runtime.tensors.device.bind import Bound
from sync_runtime.tensors.device.fold import folded
from sync_runtime.tensors.device.lists import ChangeList, new_list
from sync_runtime.tensors.device.overlay import Overlay
from sync_runtime.tensors.digest import ZERO, Digest
from sync_runtime.tensors.layout import Layout


@dataclass(frozen=True)
class Candidate:
    """What the list would become: not yet accepted."""

    lists: tuple[ChangeList, ...]
    sums: tuple[torch.Tensor, ...]
    """Per section int64[P, 2]: what the whole list adds to the digests of the live pieces."""
    changes: dict[int, Digest]
    """Per tensor: what the delta on top adds. Ranks that hold parts of a tensor add theirs up before they compare."""


class DeviceStaging:
    """The redo list over live tensors, section by section."""

    def __init__(self, layout: Layout, live: Sequence[Bound]) -> None:
        self._live = tuple(live)
        self._names = {at: spec.name for at, spec in enumerate(layout.tensors)}
        self.clear()

    @property
    def lists(self) -> tuple[ChangeList, ...]:
        """The list, by section."""
        return self._lists

    @property
    def num_elements(self) -> int:
        """How many elements a commit writes."""
        return sum(int(one.first[-1].item()) for one in self._lists)

    def clear(self) -> None:
        """Forgets the list."""
        self._lists: tuple[ChangeList, ...] = tuple(new_list(bound.section, 0) for bound in self._live)
        self._sums: tuple[torch.Tensor, ...] = tuple(_words(bound) for bound in self._live)

    def overlays(self) -> list[Overlay]:
        """Per section the state that the next delta starts from."""
        return [Overlay(bound, staged) for bound, staged in zip(self._live, self._lists, strict=True)]

    def fold(self, lists: Sequence[ChangeList]) -> Candidate:
        """The list with a decoded delta on top, and what that adds to the digests. Changes nothing here.

        The digest of a list is taken against live bits; so the delta's own part is that of the whole list less that of
        the list before, and no old bits need to be kept.
        """
        made, sums = [], []
        changes: dict[int, Digest] = {}
        for bound, before, later, words in zip(self._live, self._lists, lists, self._sums, strict=True):
            made.append(folded(bound.section, before, later))
            sums.append(_words(bound))
            list_digest(made[-1], bound, sums[-1])
            for tensor, digest in tensor_digests(bound.section, sums[-1] - words).items():
                changes[tensor] = changes.get(tensor, ZERO).plus(digest)
        return Candidate(tuple(made), tuple(sums), changes)

    def accept(self, candidate: Candidate) -> None:
        """Makes it the list."""
        self._lists, self._sums = candidate.lists, candidate.sums

    def add(self, lists: Sequence[ChangeList], promised: Sequence[Digest]) -> None:
        """Folds a decoded delta in if it leads where its manifest says; raises DigestError and keeps the list if not.

        `promised`: the manifest's digest changes per tensor of the layout, of which all blocks are held here.
        """
        candidate = self.fold(lists)
        found = {tensor: candidate.changes.get(tensor, ZERO) for tensor in self._names}
        check_digest_changes(found, dict(enumerate(promised)), self._names)
        self.accept(candidate)

    def commit(self) -> None:
        """Writes the list into the live tensors. Repeatable; forget the list only afterwards."""
        for bound, staged, sums in zip(self._live, self._lists, self._sums, strict=True):
            commit(staged, bound, sums)


def _words(bound: Bound) -> torch.Tensor:
    return torch.zeros((bound.section.num_pieces, 2), dtype=torch.int64, device=bound.section.device)
