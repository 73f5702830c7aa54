"""`syncgroup delta`: files in, files out; a sentence and nothing left behind where something is wrong."""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sync_runtime.offline import load
from sync_runtime.offline.checkpoints import MappedState, open_checkpoint
from sync_runtime.tensors.bits import BitTensor
from syncgroup.commands import delta as command
from syncgroup.errors import CommandError
from tests.support.checkpoints import save_file, save_folder
from tests.support.states import copied, next_state, same_bits, small_state

Checkpoints = tuple[Path, Path]


def run(*words: object) -> int:
    parser = argparse.ArgumentParser(prog="syncgroup delta")
    command.configure(parser)
    return command.run(parser.parse_args([str(word) for word in words]))


def read(path: Path) -> dict[str, BitTensor]:
    checkpoint = open_checkpoint(path)
    layout = checkpoint.layout()
    state = MappedState(checkpoint, layout)
    return {spec.name: state[at] for at, spec in enumerate(layout.tensors)}


@pytest.fixture
def states() -> list[dict[str, BitTensor]]:
    found = [small_state()]
    for at in range(2):
        found.append(next_state(found[-1], at, 60))
    return found


@pytest.fixture
def files(tmp_path: Path, states: list[dict[str, BitTensor]]) -> list[Path]:
    return [save_file(tmp_path / f"{at}.safetensors", state, padding=at) for at, state in enumerate(states)]


@pytest.mark.parametrize("codec", ["auto", "fast", "tight"])
def test_encode_apply_and_verify_agree(tmp_path: Path, files: list[Path], codec: str) -> None:
    step, new = tmp_path / "step.sgd", tmp_path / "new.safetensors"
    assert run("encode", files[0], files[1], "-o", step, "--codec", codec) == 0
    assert run("apply", files[0], step, "-o", new) == 0
    assert same_bits(read(new), read(files[1]))
    assert run("verify", files[0], step, new) == 0


def test_folders_of_shards_and_single_files_are_the_same_state(
    tmp_path: Path, states: list[dict[str, BitTensor]], files: list[Path]
) -> None:
    folder, step, new = save_folder(tmp_path / "base", states[0]), tmp_path / "step.sgd", tmp_path / "new"
    assert run("encode", folder, files[1], "-o", step) == 0
    assert run("apply", folder, step, "-o", new) == 0
    assert same_bits(read(new), states[1])
    assert sorted(path.name for path in new.iterdir()) == sorted(path.name for path in folder.iterdir())
    with pytest.raises(CommandError, match="exists"):
        run("apply", folder, step, "-o", new)


def test_merge_and_invert_need_no_checkpoint_for_fast(tmp_path: Path, files: list[Path]) -> None:
    first, second, direct = tmp_path / "a.sgd", tmp_path / "b.sgd", tmp_path / "direct.sgd"
    run("encode", files[0], files[1], "-o", first, "--codec", "fast")
    run("encode", files[1], files[2], "-o", second, "--codec", "fast")
    run("encode", files[0], files[2], "-o", direct, "--codec", "fast")
    assert run("merge", first, second, "-o", tmp_path / "ab.sgd") == 0
    assert bytes(load(tmp_path / "ab.sgd").object) == bytes(load(direct).object)
    assert run("invert", tmp_path / "ab.sgd", "-o", tmp_path / "back.sgd") == 0
    assert run("verify", files[2], tmp_path / "back.sgd", files[0]) == 0


def test_merging_tight_deltas_asks_for_the_base(tmp_path: Path, files: list[Path]) -> None:
    first, second, merged = tmp_path / "a.sgd", tmp_path / "b.sgd", tmp_path / "ab.sgd"
    run("encode", files[0], files[1], "-o", first, "--codec", "tight")
    run("encode", files[1], files[2], "-o", second, "--codec", "tight")
    with pytest.raises(CommandError, match="base"):
        run("merge", first, second, "-o", merged)
    assert not merged.exists()
    assert run("merge", first, second, "-o", merged, "--base", files[0], "--codec", "tight") == 0
    assert run("verify", files[0], merged, files[2]) == 0


def test_info_tells_what_a_delta_holds(tmp_path: Path, files: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    step = tmp_path / "step.sgd"
    run("encode", files[0], files[1], "-o", step, "--label", "step 12")
    capsys.readouterr()
    assert run("info", step, "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    delta = load(step)
    assert facts["changed"] == delta.manifest.num_changed
    assert facts["bytes"] == step.stat().st_size
    assert facts["bits_per_changed"] == pytest.approx(8 * facts["bytes"] / facts["changed"])
    assert facts["label"] == "step 12"
    assert sum(facts["blocks"].values()) == len(delta.blocks)
    assert run("info", step) == 0
    assert "bits_per_changed" in capsys.readouterr().out


def damaged_delta(tmp_path: Path, files: list[Path]) -> Path:
    step = tmp_path / "step.sgd"
    run("encode", files[0], files[1], "-o", step)
    altered = bytearray(step.read_bytes())
    altered[60] ^= 4
    step.write_bytes(altered)
    return step


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        pytest.param(["encode", "{0}", "{missing}", "-o", "{out}"], "No such file", id="missing file"),
        pytest.param(["encode", "{0}", "{text}", "-o", "{out}"], "not a safetensors", id="not a checkpoint"),
        pytest.param(["encode", "{0}", "{other}", "-o", "{out}"], "codes", id="other tensors"),
        pytest.param(["encode", "{0}", "{1}", "-o", "{missing}/x.sgd"], "no folder", id="no folder"),
        pytest.param(["encode", "{0}", "{1}", "-o", "{out}", "--device", "cuda"], "cpu", id="no GPU"),
        pytest.param(["apply", "{1}", "{step}", "-o", "{out}"], "already", id="replay"),
        pytest.param(["apply", "{2}", "{step}", "-o", "{out}"], "starts from", id="wrong base"),
        pytest.param(["apply", "{0}", "{damaged}", "-o", "{out}"], "altered", id="damaged"),
        pytest.param(["apply", "{0}", "{text}", "-o", "{out}"], "does not end as a delta|too short", id="not a delta"),
        pytest.param(["merge", "{step}", "{step}", "-o", "{out}"], "in order", id="no chain"),
        pytest.param(["verify", "{0}", "{step}", "{2}"], "differs", id="not what it leads to"),
        pytest.param(["info", "{missing}"], "No such file", id="no delta"),
    ],
)
def test_bad_input_ends_in_a_sentence_and_leaves_nothing_behind(
    tmp_path: Path, states: list[dict[str, BitTensor]], files: list[Path], words: list[str], sentence: str
) -> None:
    other = copied(states[0])
    del other["codes"]
    names = {
        "missing": tmp_path / "missing",
        "text": tmp_path / "text",
        "other": save_file(tmp_path / "other.safetensors", other),
        "damaged": damaged_delta(tmp_path, files).rename(tmp_path / "damaged.sgd"),
        "step": tmp_path / "good.sgd",
        "out": tmp_path / "out",
    }
    names["text"].write_text("these are only words, and not many of them")
    run("encode", files[0], files[1], "-o", names["step"])
    before = sorted(path.name for path in tmp_path.iterdir())
    with pytest.raises(CommandError, match=sentence):
        run(*(word.format(*files, **names) for word in words))
    assert sorted(path.name for path in tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"{",
        b"[]",
        b'{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}',
        b'{"w":{"dtype":"F32","shape":[-1],"data_offsets":[0,-4]}}',
        b'{"w":{"dtype":"F32","shape":[99],"data_offsets":[0,396]}}',
        b'{"w":{"dtype":"F32","shape":[1],"data_offsets":[0]}}',
        b'{"w":{"dtype":"F4","shape":[2],"data_offsets":[0,1]}}',
        b'{"w":5}',
    ],
)
def test_hostile_headers_of_checkpoints_are_refused(tmp_path: Path, files: list[Path], header: bytes) -> None:
    path = tmp_path / "hostile.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    with pytest.raises(CommandError):
        run("encode", path, files[0], "-o", tmp_path / "x.sgd")


def test_an_index_may_not_lead_outside_its_folder(tmp_path: Path, states: list[dict[str, BitTensor]]) -> None:
    folder = save_folder(tmp_path / "base", states[0])
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"w": "../0.safetensors"}}))
    with pytest.raises(CommandError, match="outside"):
        run("encode", folder, folder, "-o", tmp_path / "x.sgd")


def test_the_written_checkpoint_is_readable_by_the_safetensors_library(tmp_path: Path, files: list[Path]) -> None:
    numpy_reader = pytest.importorskip("safetensors.numpy", reason="the safetensors package is not installed")
    base: dict[str, np.ndarray[Any, Any]] = {"a": np.arange(70_000, dtype=np.float32), "b": np.ones((3, 4), np.float16)}
    new = {"a": base["a"] * np.float32(1.1), "b": base["b"]}
    for name, state in (("x", base), ("y", new)):
        numpy_reader.save_file(state, tmp_path / f"{name}.safetensors")
    run("encode", tmp_path / "x.safetensors", tmp_path / "y.safetensors", "-o", tmp_path / "xy.sgd")
    run("apply", tmp_path / "x.safetensors", tmp_path / "xy.sgd", "-o", tmp_path / "z.safetensors")
    found = numpy_reader.load_file(tmp_path / "z.safetensors")
    assert all(np.array_equal(found[name].view(np.uint8), new[name].view(np.uint8)) for name in new)
