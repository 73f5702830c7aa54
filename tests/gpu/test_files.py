import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import pytest
import torch

from sync_runtime.offline.device import DeviceError, check_room
from sync_runtime.tensors.bits import bind as bind_cpu
from sync_runtime.tensors.layout import make_layout
from syncgroup.commands import delta as command
from syncgroup.errors import CommandError
from tests.gpu.more_checks import check_device_diff
from tests.gpu.support import Case, make_case
from tests.support.checkpoints import save_file, save_folder

pytestmark = pytest.mark.timeout(300)
TENSORS = [
    ("a.0", "BF16", (300, 1024)), ("a.1", "BF16", (300, 1024)), ("e", "F8_E4M3", (30, 77)), ("f", "F32", (300, 300)),
    ("h", "F16", (300, 400)), ("i", "I64", (5,)), ("n", "BF16", (100,)), ("s", "BF16", ()), ("z", "BF16", (0,)),
]  # fmt: skip


def run(words: Sequence[object]) -> int:
    parser = argparse.ArgumentParser(prog="syncgroup delta")
    command.configure(parser)
    return command.run(parser.parse_args([str(word) for word in words]))


@pytest.fixture
def case() -> Case:
    return make_case(TENSORS, 0.02)


@pytest.mark.parametrize("density", [0.0, 0.02, 0.7])
def test_object_and_manifest_are_the_cpus(density: float) -> None:
    check_device_diff(make_case(TENSORS, density), "cuda")


@pytest.mark.parametrize("codec", ["fast", "tight", "auto"])
@pytest.mark.parametrize("sharded", [False, True], ids=["one file", "folder of shards"])
def test_the_command_line_writes_the_same_file_on_both_devices(
    tmp_path: Path, case: Case, codec: str, sharded: bool
) -> None:
    paths = []
    for name, state in (("base", case.old), ("new", case.new)):
        bits = {case.layout.tensors[at].name: one for at, one in bind_cpu(case.layout, state).items()}
        paths.append(save_folder(tmp_path / name, bits, 3) if sharded else save_file(tmp_path / name, bits, padding=1))
    for device in ("cpu", "cuda"):
        words = ["encode", *paths, "-o", tmp_path / f"{device}.sgd", "--codec", codec, "--device", device]
        assert run([*words, "--label", "step 9"]) == 0
    assert (tmp_path / "cuda.sgd").read_bytes() == (tmp_path / "cpu.sgd").read_bytes()
    assert run(["verify", paths[0], tmp_path / "cuda.sgd", paths[1]]) == 0


def test_states_that_do_not_fit_are_refused_before_anything_is_read() -> None:
    layout = make_layout([("w", "BF16", (1 << 20, 1 << 20))])
    with pytest.raises(DeviceError, match=r"GiB of GPU memory.*--device cpu"):
        check_room(layout, "cuda")


def test_memory_that_runs_out_on_the_way_is_a_sentence_and_leaves_no_file(
    tmp_path: Path, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> NoReturn:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr("sync_runtime.offline.device.compare", full)
    bits = {case.layout.tensors[at].name: one for at, one in bind_cpu(case.layout, case.old).items()}
    base = save_file(tmp_path / "base", bits)
    with pytest.raises(CommandError, match="--device cpu"):
        run(["encode", base, base, "-o", tmp_path / "out.sgd", "--device", "cuda"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["base"]
