"""Two copies of a checkpoint in turns behind one symbolic link: readers always find a whole version.

    ROOT/current -> 00000007-0f3c…      what to hand to `from_pretrained`; resolve it once, then read
    ROOT/00000007-0f3c…/                the version that is served
    ROOT/00000006-a911…/                the one before, until its readers have left; then it becomes the next
    ROOT/.layout.json                   the trainer's names for what the checkpoint holds

Deltas are applied to the older copy, which lacks some more: work and writes are in proportion to what changed, never
to the model. A copy gets its new name before the link moves to it, and loses its old name before its first byte
changes: a reader that comes late with an old path finds nothing rather than a mixture. It is left alone while anyone
reads it, and for a grace after it stopped being current, for readers between two files. One process writes.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from sync_runtime.bucket.durable import sync_folder
from sync_runtime.errors import ChainError, FormatError, LayoutError, SpoolLockedError
from sync_runtime.offline.checkpoints import Checkpoint, MappedState, open_checkpoint
from sync_runtime.offline.deltafile import Delta
from sync_runtime.offline.durable import durable_file, read_small
from sync_runtime.offline.served.copies import Held, Readers, bring_forward, make_copy, read_note, readers_of, rewrite
from sync_runtime.offline.streams import state_digest
from sync_runtime.offline.written import stored_ties
from sync_runtime.tensors.blocks import BlockMap
from sync_runtime.tensors.digest import Digest
from sync_runtime.tensors.layout import MAX_DOCUMENT_BYTES, Layout, parse_layout

CURRENT = "current"
_LOCK = ".lock"
_SPARE = ".spare"
_LINK = ".current.part"
_LAYOUT = ".layout.json"


class ServedFolder:
    """A folder that follows a lineage."""

    def __init__(
        self,
        root: Path,
        base: Path,
        layout: Layout | None = None,
        *,
        seq: int = 0,
        grace_s: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
        threads: int | None = None,
    ) -> None:
        """Opens the folder at `root`, or makes it from a base checkpoint folder, which becomes version `seq`.

        `layout` is the trainer's; where nobody knows it yet, the one that was served last, else the base's own names.
        """
        root.mkdir(parents=True, exist_ok=True)
        self._root, self._threads = root, threads
        self._grace_s, self._clock, self._swapped_at_s = grace_s, clock, clock()
        self._lock = _locked(root / _LOCK)
        self._last: Sequence[Delta] = ()
        """What the older copy lacks."""
        self._next: tuple[Held, Sequence[Delta]] | None = None
        """What is made and not served yet."""
        try:
            self._clean()
            served = self._served()
            self._layout = layout or self._known_layout(None if served is None else root / _name(served), base)
            self._held = served or self._first(base, seq)
        except BaseException:
            self.close()
            raise

    @property
    def held(self) -> Held:
        """The version that readers find."""
        return self._held

    @property
    def path(self) -> Path:
        """Its folder: a path that means this version, and never another."""
        return self._root / _name(self._held)

    @property
    def layout(self) -> Layout:
        """The tensors, by the names that their digest is taken under."""
        return self._layout

    def advance(self, *deltas: Delta) -> bool:
        """Serves the next version, or one some versions on. False while readers may hold the older copy: ask again.

        Raises where the deltas do not lead on from the served version, or their bits are not what they promise;
        readers notice nothing of that.
        """
        if not self.prepare(*deltas):
            return False
        self.switch()
        return True

    def prepare(self, *deltas: Delta) -> bool:
        """As `advance`, but readers see nothing of it before `switch`."""
        if deltas[0].base.digest != self._held.digest:
            raise ChainError(f"version {self._held.seq} is served; the delta starts from {deltas[0].base.digest}")
        spare = self._spare()
        if spare is None:
            return False
        held = read_note(spare)
        missing = None if held is None else self._missing(held, deltas[0].layout)
        if held is None or missing is None:
            spare, held, missing = self._copied(spare), self._held, []
        self._next = bring_forward(spare, held, [*missing, *deltas], self._threads), deltas
        self._set_layout(deltas[0].layout)
        return True

    def prepare_whole(self, anchor: memoryview, layout: Layout, held: Held) -> bool:
        """The same from whole weights, whatever is served now."""
        spare = self._spare()
        if spare is None:
            return False
        if read_note(spare) is None:
            spare = self._copied(spare)
        rewrite(spare, BlockMap(layout), anchor, held, self._threads)
        self._next = held, ()
        self._set_layout(layout)
        return True

    def switch(self) -> None:
        """Serves what was prepared."""
        if self._next is None:
            raise ChainError("nothing was prepared that could be served")
        (held, deltas), self._next = self._next, None
        spare = self._root / _SPARE
        if held == self._held:  # the same again, after its bits were found wrong: no two copies have one name
            self._point_to(_SPARE)
            shutil.rmtree(self.path)
        spare.rename(self._root / _name(held))
        sync_folder(self._root)
        self._point_to(_name(held))
        self._held, self._last, self._swapped_at_s = held, deltas, self._clock()

    def scrub(self) -> bool:
        """Whether every bit of the served version is right: reads all of it."""
        return self.digest() == self._held.digest

    def digest(self) -> Digest:
        """The full digest of what readers find: reads all of it."""
        return self._digest_of(open_checkpoint(self.path))

    def close(self) -> None:
        """Lets another process write."""
        os.close(self._lock)

    def _spare(self) -> Path | None:
        """The copy to write, under a name that no reader knows; None while it may be read."""
        self._next = None
        spare = self._root / _SPARE
        if spare.exists():  # of an attempt that failed, or was never served
            return spare
        found = [path for path in self._copies() if path.name != _name(self._held)]
        if not found:
            return self._copied(spare)
        older = found[0]
        if self._clock() < self._swapped_at_s + self._grace_s or readers_of(older) is Readers.SOMEBODY:
            return None
        older.rename(spare)
        sync_folder(self._root)
        readers = readers_of(spare)  # again: somebody may have come before the name went
        if readers is Readers.SOMEBODY:
            spare.rename(older)
            return None
        return self._copied(spare) if readers is Readers.UNKNOWN else spare

    def _copied(self, spare: Path) -> Path:
        """A fresh copy of what is served, in the place of one that is of no use. Who has that open keeps it."""
        if spare.exists():
            shutil.rmtree(spare)
        make_copy(open_checkpoint(self.path), spare, self._held)
        return spare

    def _missing(self, held: Held, layout: Layout) -> Sequence[Delta] | None:
        """What a copy lacks to be the served version; None where that is not known any more."""
        if held == self._held:
            return ()
        last = self._last
        fits = bool(last) and last[0].base.digest == held.digest and last[0].layout.hash == layout.hash
        return last if fits else None

    def _digest_of(self, checkpoint: Checkpoint) -> Digest:
        return state_digest(BlockMap(self._layout), MappedState(checkpoint, self._layout), self._threads)

    def _point_to(self, name: str) -> None:
        link = self._root / _LINK
        link.unlink(missing_ok=True)
        link.symlink_to(name)
        link.replace(self._root / CURRENT)
        sync_folder(self._root)

    def _first(self, base: Path, seq: int) -> Held:
        if base.is_file():
            raise FormatError(f"{base} is a file; `from_pretrained` wants a folder")
        checkpoint = open_checkpoint(base)
        stored_ties(checkpoint, self._layout)  # once: from here on both names are written alike
        held = Held(seq, self._digest_of(checkpoint))
        spare = self._root / _SPARE
        make_copy(checkpoint, spare, held)
        spare.rename(self._root / _name(held))
        sync_folder(self._root)
        self._point_to(_name(held))
        return held

    def _known_layout(self, served: Path | None, base: Path) -> Layout:
        """The last trainer's, where it still fits; else the checkpoint's own."""
        checkpoint = open_checkpoint(base if served is None else served)
        try:
            layout = parse_layout(read_small(self._root / _LAYOUT, MAX_DOCUMENT_BYTES))
            MappedState(checkpoint, layout)
        except (FileNotFoundError, FormatError, LayoutError):
            return checkpoint.layout()
        return layout

    def _set_layout(self, layout: Layout) -> None:
        if layout.hash != self._layout.hash:
            with durable_file(self._root / _LAYOUT) as file:
                file.write(layout.document)
            self._layout = layout

    def _served(self) -> Held | None:
        """What an earlier process left: the version that the link leads to, if its note agrees."""
        link = self._root / CURRENT
        if not link.is_symlink():
            return None
        held = read_note(self._root / os.readlink(link))
        if held is not None and os.readlink(link) == _SPARE:  # it ended in the middle of serving the same again
            shutil.rmtree(self._root / _name(held), ignore_errors=True)
            (self._root / _SPARE).rename(self._root / _name(held))
            self._point_to(_name(held))
        return held if held is not None and _name(held) == os.readlink(link) else None

    def _clean(self) -> None:
        """Removes what an earlier process left beside its version: what those copies lack is not known any more."""
        served = self._served()
        for path in (*self._copies(), self._root / _SPARE):
            if path.is_dir() and (served is None or path.name != _name(served)):
                shutil.rmtree(path)
        (self._root / _LINK).unlink(missing_ok=True)

    def _copies(self) -> list[Path]:
        return sorted(
            path for path in self._root.iterdir() if path.is_dir() and not path.is_symlink() and path.name[0] != "."
        )


def _name(held: Held) -> str:
    return f"{held.seq:08d}-{held.digest}"


def _locked(path: Path) -> int:
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        raise SpoolLockedError(f"another process writes {path.parent}") from error
    return handle
