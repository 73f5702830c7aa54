"""Whether an engine can take what the trainer publishes: the same tensors, and the same blocks where it decodes itself.

Judged by objects in the spool, whose manifests the trainer signed: a parent's word alone must not turn an engine away.
Lives on the brain's loop. Knows nothing of how versions are staged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from sync_runtime.bucket.spool import Spool
from sync_runtime.errors import LayoutError
from sync_runtime.local.faults import to_message
from sync_runtime.local.link import LINK_REQUEST, Library
from sync_runtime.session.versions import Versions
from sync_runtime.tensors.layout import Layout, TensorSpec, parse_layout

_log = logging.getLogger(__name__)
REASON = "Layout"
"""What reports call it."""
SHOWN = 2
"""Names in a sentence: reports hold 200 characters."""


class Gate:
    """Turns an engine away that cannot use what the trainer publishes. It may come again: trainers change, too."""

    def __init__(
        self, check: Callable[[Library, Layout], None], spawn: Callable[[object], None], changed: Callable[[], None]
    ) -> None:
        self._check, self._spawn, self._changed = check, spawn, changed
        self.trouble: tuple[str, str] | None = None
        """Why the last engine that came was turned away; None: it was not."""
        self._gone: Library | None = None

    def check(self, library: Library, layout: Layout) -> None:
        """An engine opens; raises LayoutError, which is its answer."""
        try:
            self._check(library, layout)
        except LayoutError as error:
            self._note((REASON, str(error)))
            raise
        self._note(None)

    def admits(self, library: Library, layout: Layout) -> bool:
        """Whether an engine that is open can go on; otherwise it is told why, and hung up on."""
        if library is self._gone:
            return False
        try:
            self._check(library, layout)
        except LayoutError as error:
            self._note((REASON, str(error)))
            self._gone = library
            self._spawn(_part(library, error))
            return False
        return True

    def _note(self, trouble: tuple[str, str] | None) -> None:
        if trouble == self.trouble:  # whoever is turned away comes again every few seconds
            return
        self.trouble = trouble
        if trouble is not None:
            _log.warning("%s: %s", *trouble)
        self._changed()


async def _part(library: Library, error: LayoutError) -> None:
    await library.send_quietly(to_message(LINK_REQUEST, error))
    library.hang_up()


class Fitting:
    """Compares an engine's layout with that of the lineage that is followed."""

    def __init__(self, spool: Spool, versions: Versions) -> None:
        self._spool, self._versions = spool, versions
        self._judged: tuple[tuple[bytes, str, bool], str | None] | None = None

    def check(self, own: Layout, *, same_blocks: bool) -> None:
        """Raises LayoutError where versions cannot be used; does nothing while none of the lineage is here."""
        head = self._versions.head
        objects = () if head is None else self._spool.objects()
        found = next((one.facts.layout_hash for one in objects if head and one.key.lineage == head.lineage), None)
        if found is None or found == own.hash.hex():
            return
        case = (own.hash, found, same_blocks)
        if self._judged is None or self._judged[0] != case:
            document = self._spool.layout(found)
            told = None if document is None else misfit(own, parse_layout(document), same_blocks=same_blocks)
            self._judged = (case, told)
        if self._judged[1] is not None:
            raise LayoutError(self._judged[1])


def misfit(own: Layout, trainer: Layout, *, same_blocks: bool) -> str | None:
    """What keeps an engine from using a trainer's versions, as a sentence; None: nothing.

    Args:
        own: of the engine.
        trainer: of the versions.
        same_blocks: whether the engine decodes by itself, and so must have the trainer's blocks.
    """
    mine, theirs = ({spec.name: spec for spec in layout.tensors} for layout in (own, trainer))
    missing, strange = sorted(theirs.keys() - mine.keys()), sorted(mine.keys() - theirs.keys())
    if missing:
        return f"the trainer publishes {_shown(missing)}, which this engine does not have"
    if strange:
        return f"this engine has {_shown(strange)}, which the trainer does not publish"
    other = [name for name, spec in mine.items() if _kind(spec) != _kind(theirs[name])]
    if other:
        there, here = _kind(theirs[other[0]]), _kind(mine[other[0]])
        more = f", and {len(other) - 1} more differ" if len(other) > 1 else ""
        return f"{other[0]!r} is {there} at the trainer and {here} in this engine{more}"
    if own.tied != trainer.tied:
        differing = sorted({alias for alias, _ in set(own.tied) ^ set(trainer.tied)})
        return f"{_shown(differing)}: tied at one of trainer and engine, and not, or otherwise, at the other"
    if same_blocks and own.document != trainer.document:
        return _otherwise_cut(mine, theirs)
    return None


def _otherwise_cut(mine: dict[str, TensorSpec], theirs: dict[str, TensorSpec]) -> str:
    name = next((name for name, spec in mine.items() if spec.grid != theirs[name].grid), None)
    if name is None:
        return "the trainer's blocks have another size than this engine's: use one release at both"
    return (
        f"{name!r} is cut {_cut(theirs[name])} at the trainer, {_cut(mine[name])} in this engine: give the engine "
        "what `Publisher.cuts` says, or cut the trainer for it"
    )


def _kind(spec: TensorSpec) -> str:
    return f"{spec.dtype.name}{list(spec.shape)}"


def _cut(spec: TensorSpec) -> str:
    if spec.grid is None:
        return "nowhere"
    return f"every {spec.grid.row_period} rows and {spec.grid.col_step // spec.dtype.elements_per_item} columns"


def _shown(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(repr(name) for name in names[:SHOWN]) + more
