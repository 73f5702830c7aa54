"""A served checkpoint folder: whole versions behind a link, patched in place, kept for readers, whole after a crash."""

import mmap
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from sync_runtime.errors import ChainError, DigestError, FormatError, LayoutError, SpoolLockedError, WrongBaseError
from sync_runtime.offline import Delta, diff, layout_of
from sync_runtime.offline.checkpoints import open_checkpoint
from sync_runtime.offline.deltafile import parse
from sync_runtime.offline.served import copies
from sync_runtime.offline.served.copies import NOTE, Readers, readers_of
from sync_runtime.offline.served.folder import CURRENT, ServedFolder
from sync_runtime.tensors.bits import BitTensor
from tests.support.checkpoints import save_file, save_folder
from tests.support.children import REPOSITORY
from tests.support.interop import read_state
from tests.support.states import next_state, same_bits, small_state

State = dict[str, BitTensor]


class Run:
    """A lineage and the folder that follows it."""

    def __init__(self, folder: Path, num_versions: int = 6) -> None:
        self.states: list[State] = [small_state()]
        for at in range(num_versions):
            self.states.append(next_state(self.states[-1], at, 40))
        self.layout = layout_of(self.states[0])
        self.base = save_folder(folder / "base", self.states[0])
        (self.base / "config.json").write_text("{}")
        self.root = folder / "served"
        self.now_s = 0.0

    def opened(self, grace_s: float = 0.0) -> ServedFolder:
        return ServedFolder(self.root, self.base, self.layout, grace_s=grace_s, clock=lambda: self.now_s, threads=1)

    def delta(self, number: int) -> Delta:
        """The one that leads to a version."""
        pair = self.states[number - 1], self.states[number]
        return diff(*pair, layout=self.layout, seqs=(number - 1, number), threads=1)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


@pytest.fixture
def folder(run: Run) -> Iterator[ServedFolder]:
    served = run.opened()
    yield served
    served.close()


def test_the_base_is_served_first_with_what_lies_beside_it(run: Run, folder: ServedFolder) -> None:
    assert same_bits(read_state(run.root / CURRENT), run.states[0])
    assert (run.root / CURRENT / "config.json").read_text() == "{}"
    assert folder.path == (run.root / CURRENT).resolve()
    assert folder.held.seq == 0


def test_every_version_is_served_whole_and_the_one_before_is_kept(run: Run, folder: ServedFolder) -> None:
    for number in range(1, 7):
        before = folder.path
        assert folder.advance(run.delta(number))
        assert same_bits(read_state(run.root / CURRENT), run.states[number])
        assert same_bits(read_state(before), run.states[number - 1])
        assert (run.root / CURRENT / "config.json").exists()
        assert folder.scrub()
    assert len([path for path in run.root.iterdir() if path.is_dir() and not path.is_symlink()]) == 2
    assert same_bits(read_state(run.base), run.states[0]), "the user's own folder is never written"


def test_versions_are_made_by_writing_into_older_copies(run: Run, folder: ServedFolder) -> None:
    def files(path: Path) -> dict[str, int]:
        return {file.name: file.stat().st_ino for file in path.iterdir() if file.suffix == ".safetensors"}

    folder.advance(run.delta(1))
    first = files(folder.path)
    folder.advance(run.delta(2))
    second = files(folder.path)
    folder.advance(run.delta(3))
    assert files(folder.path) == first, "no file was copied: version 3 is version 1, brought forward"
    folder.advance(run.delta(4))
    assert files(folder.path) == second


def test_a_copy_that_is_read_is_left_alone(run: Run, folder: ServedFolder) -> None:
    folder.advance(run.delta(1))
    older = run.root / CURRENT
    shard = next(path for path in older.resolve().iterdir() if path.suffix == ".safetensors")
    with shard.open("rb") as file:
        held = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    before = bytes(held)
    assert folder.advance(run.delta(2))
    assert not folder.advance(run.delta(3)), "version 1 is mapped, and version 3 would be written into it"
    assert same_bits(read_state(run.root / CURRENT), run.states[2])
    assert (bytes(held), shard.exists()) == (before, True)
    held.close()
    assert folder.advance(run.delta(3))
    assert same_bits(read_state(run.root / CURRENT), run.states[3])


def test_readers_are_seen_whoever_they_are(tmp_path: Path) -> None:
    folder = save_folder(tmp_path / "copy", small_state())
    assert readers_of(folder) is Readers.NOBODY
    child_in, parent_out = os.pipe()
    parent_in, child_out = os.pipe()
    child = os.posix_spawn(
        "/bin/sh",
        ["sh", "-c", f"exec 9< '{next(folder.glob('*.safetensors'))}'; echo; read line"],
        {},
        file_actions=[(os.POSIX_SPAWN_DUP2, child_in, 0), (os.POSIX_SPAWN_DUP2, child_out, 1)],
    )
    assert os.read(parent_in, 1) == b"\n"
    assert readers_of(folder) is Readers.SOMEBODY
    os.write(parent_out, b"\n")
    os.waitpid(child, 0)
    assert readers_of(folder) is Readers.NOBODY
    for handle in (child_in, child_out, parent_in, parent_out):
        os.close(handle)


def test_a_reader_that_comes_while_it_is_looked_for_ends_nobody(tmp_path: Path) -> None:
    shard = next(save_folder(tmp_path / "copy", small_state()).glob("*.safetensors"))
    program = (
        "import fcntl, os, subprocess, sys\n"
        "from pathlib import Path\n"
        "from sync_runtime.offline.served import copies\n"
        "real, path, ends = fcntl.fcntl, sys.argv[1], []\n"
        "come = f'import os; os.open({path!r}, os.O_RDONLY | os.O_NONBLOCK)'\n"
        "def looked(handle, command, what):\n"
        "    found = real(handle, command, what)\n"
        "    if (command, what) == (fcntl.F_SETLEASE, fcntl.F_WRLCK):\n"
        "        ends.append(subprocess.run([sys.executable, '-c', come], stderr=subprocess.DEVNULL).returncode)\n"
        "    return found\n"
        "fcntl.fcntl = looked\n"
        "copies.readers_of(Path(path).parent)\n"
        "assert 1 in ends, 'nobody met the lease'\n"
    )
    assert subprocess.run([sys.executable, "-c", program, str(shard)], cwd=REPOSITORY, check=False).returncode == 0


def test_where_readers_cannot_be_seen_a_fresh_copy_is_written(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sync_runtime.offline.served.folder.readers_of", lambda _: Readers.UNKNOWN)
    folder = run.opened()
    folder.advance(run.delta(1))
    shard = next(path for path in folder.path.iterdir() if path.suffix == ".safetensors")
    with shard.open("rb") as file:
        before = file.read()
        assert folder.advance(run.delta(2))
        assert folder.advance(run.delta(3))
        file.seek(0)
        assert file.read() == before, "who has a file open keeps it"
    assert same_bits(read_state(run.root / CURRENT), run.states[3])
    folder.close()


def test_a_reader_that_comes_at_the_last_moment_is_seen(
    run: Run, folder: ServedFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.advance(run.delta(1))
    older = folder.path
    folder.advance(run.delta(2))
    answers = iter([Readers.NOBODY, Readers.SOMEBODY])
    monkeypatch.setattr("sync_runtime.offline.served.folder.readers_of", lambda _: next(answers))
    assert not folder.advance(run.delta(3))
    assert same_bits(read_state(older), run.states[1]), "it has its name again, and its bits"


def test_an_older_copy_is_left_alone_for_a_grace(run: Run) -> None:
    folder = run.opened(grace_s=30)
    assert folder.advance(run.delta(1))
    run.now_s = 29
    assert not folder.advance(run.delta(2))
    run.now_s = 30
    assert folder.advance(run.delta(2))
    folder.close()


def test_a_delta_from_elsewhere_is_refused(run: Run, folder: ServedFolder) -> None:
    with pytest.raises(ChainError, match="version 0 is served"):
        folder.advance(run.delta(2))


def test_a_delta_that_lies_changes_nothing_and_the_next_one_is_taken(run: Run, folder: ServedFolder) -> None:
    good = run.delta(1)
    lie = diff(run.states[0], run.states[2], layout=run.layout, seqs=(0, 1), threads=1)
    wrong = Delta(good.layout, good.manifest, lie.object)
    for _ in range(2):
        with pytest.raises((DigestError, FormatError)):
            folder.advance(wrong)
        assert same_bits(read_state(run.root / CURRENT), run.states[0])
    assert folder.advance(good)
    assert same_bits(read_state(run.root / CURRENT), run.states[1])


def test_a_copy_takes_only_deltas_that_start_where_it_is(run: Run, folder: ServedFolder) -> None:
    with pytest.raises(WrongBaseError, match="version 0"):
        copies.bring_forward(folder.path, folder.held, [run.delta(2)], threads=1)
    with pytest.raises(WrongBaseError, match="version 1"):
        copies.bring_forward(folder.path, folder.held, [run.delta(1), run.delta(3)], threads=1)
    assert folder.scrub()


def test_a_copy_that_was_altered_behind_our_back_is_noticed(run: Run, folder: ServedFolder) -> None:
    folder.advance(run.delta(1))
    entry = open_checkpoint(folder.path).entries["layers.0.mlp.weight"]
    with entry.file.open("r+b") as file:
        file.seek(entry.begin)
        file.write(b"\xff\xff")
    assert not folder.scrub()


def test_tied_names_that_are_stored_apart_follow(tmp_path: Path) -> None:
    before = small_state()
    after = next_state(before, 3, 40)
    tied = [{**state, "z.head": state["layers.0.mlp.weight"]} for state in (before, after)]
    layout = layout_of(tied[0])
    assert layout.tied
    base = save_folder(tmp_path / "base", tied[0])
    folder = ServedFolder(tmp_path / "served", base, layout, grace_s=0, threads=1)
    assert folder.advance(diff(tied[0], tied[1], layout=layout, threads=1))
    assert same_bits(read_state(folder.path), tied[1])
    folder.close()


def test_a_tie_that_the_base_does_not_keep_is_refused(tmp_path: Path) -> None:
    tied = small_state()
    tied["z.head"] = tied["layers.0.mlp.weight"]
    layout = layout_of(tied)
    base = save_folder(tmp_path / "base", {**tied, "z.head": small_state(9)["layers.0.mlp.weight"]})
    with pytest.raises(LayoutError, match=r"z\.head"):
        ServedFolder(tmp_path / "served", base, layout, threads=1)


def test_one_process_writes(run: Run, folder: ServedFolder) -> None:
    with pytest.raises(SpoolLockedError, match="another process"):
        run.opened()


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    state = small_state()
    with pytest.raises(FormatError, match="wants a folder"):
        ServedFolder(tmp_path / "served", save_file(tmp_path / "b.safetensors", state), layout_of(state), threads=1)
    ServedFolder(tmp_path / "served", save_folder(tmp_path / "b", state), layout_of(state), threads=1).close()


def test_a_folder_is_opened_again_where_it_was_left(run: Run) -> None:
    folder = run.opened()
    folder.advance(run.delta(1))
    folder.advance(run.delta(2))
    folder.close()
    again = run.opened()
    assert again.held.seq == 2
    assert [path.name for path in run.root.iterdir() if path.is_dir() and not path.is_symlink()] == [again.path.name]
    assert again.scrub()
    assert again.advance(run.delta(3))
    assert same_bits(read_state(run.root / CURRENT), run.states[3])
    again.close()


class Stop(BaseException):
    """The end of a process, as far as the code can tell."""


@pytest.mark.parametrize("fatal", range(24))
def test_the_end_at_any_step_leaves_a_whole_version(run: Run, monkeypatch: pytest.MonkeyPatch, fatal: int) -> None:
    folder = run.opened()
    folder.advance(run.delta(1))
    folder.advance(run.delta(2))
    steps = iter(range(1000))

    def counted(name: str) -> None:
        real = getattr(os, name)

        def step(*arguments: object, **more: object) -> object:
            if next(steps) == fatal:
                raise Stop
            return real(*arguments, **more)

        monkeypatch.setattr(os, name, step)

    for name in ("fsync", "rename", "replace", "symlink", "unlink"):
        counted(name)
    ended = False
    try:
        folder.advance(run.delta(3))
    except Stop:
        ended = True
    monkeypatch.undo()
    found = [number for number in (2, 3) if same_bits(read_state(run.root / CURRENT), run.states[number])]
    assert found == [3] or (ended and found == [2])
    folder.close()
    again = run.opened()
    assert again.scrub()
    for number in range(again.held.seq + 1, 6):
        assert again.advance(run.delta(number))
    assert same_bits(read_state(run.root / CURRENT), run.states[5])
    assert (run.root / CURRENT / NOTE).exists()
    again.close()


def test_bytes_that_never_reached_the_disk_are_not_believed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = run.opened()
    folder.advance(run.delta(1))
    folder.advance(run.delta(2))

    def ended(*_: object) -> None:
        raise Stop

    monkeypatch.setattr(copies, "write_staged", ended)
    with pytest.raises(Stop):
        folder.advance(run.delta(3))
    monkeypatch.undo()
    assert copies.read_note(run.root / ".spare") is None
    assert folder.advance(run.delta(3)), "the copy without a note is made anew"
    assert same_bits(read_state(run.root / CURRENT), run.states[3])
    folder.close()


def test_a_delta_from_a_file_serves_as_well(run: Run, folder: ServedFolder) -> None:
    assert folder.advance(parse(memoryview(run.delta(1).to_bytes())))
    assert np.array_equal(read_state(folder.path)["router.bias"].matrix, run.states[1]["router.bias"].matrix)
