"""Hostile bytes are parsed without torch, their frame without compiled code: shown where neither can be imported."""

import subprocess
import sys
from pathlib import Path

import pytest

GOLDEN = Path(__file__).with_name("golden")
WITHOUT = "import sys; sys.modules.update(dict.fromkeys({names!r}))\n"
FRAME = """
from pathlib import Path
from sync_runtime.bucket.manifest import open_envelope, parse_manifest
from sync_runtime.codec.frame import parse_object
from sync_runtime.codec.tables import parse_tables
from sync_runtime.tensors.blocks import BlockMap
from sync_runtime.tensors.layout import parse_layout

data = Path(sys.argv[1]).read_bytes()
sizes = [int.from_bytes(data[-24:-16], "little"), *(int.from_bytes(data[at : at + 4], "little") for at in (-16, -12))]
layout = parse_layout(data[sizes[0] : sum(sizes[:2])])
manifest = parse_manifest(open_envelope(data[sum(sizes[:2]) : sum(sizes)])[0])
header, tables, records = parse_object(memoryview(data[: sizes[0]]))
parse_tables(tables, BlockMap(layout).groups)
assert sum(record.count for record in records) == manifest.num_changed > 0
"""
WHOLE = """
from sync_runtime.errors import SyncError
from sync_runtime.offline import Snapshot, apply, diff, digest, invert, layout_of, load, merge, transcode

delta = load(sys.argv[1])
for block, record in delta.reader().records():
    if record.mode != 2:
        delta.reader().decode(block, record, None)
try:
    apply({}, delta)
except SyncError:
    print("refused")
"""


def run(program: str, *arguments: object) -> str:
    command = [sys.executable, "-c", program, *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.timeout(60)
@pytest.mark.parametrize("codec", ["fast", "tight", "auto"])
def test_the_frame_of_a_file_is_read_with_numpy_alone(codec: str) -> None:
    run(WITHOUT.format(names=("torch", "triton", "numba", "pydantic")) + FRAME, GOLDEN / f"{codec}.sgd")


@pytest.mark.timeout(60)
def test_everything_offline_works_where_torch_does_not_exist() -> None:
    program = WITHOUT.format(names=("torch", "triton")) + WHOLE
    assert run(program, GOLDEN / "fast.sgd") == "refused\n"


@pytest.mark.timeout(60)
def test_reading_a_delta_does_not_load_torch_where_it_exists() -> None:
    loaded = run(f"import sys{WHOLE}print(*{{name.partition('.')[0] for name in sys.modules}})", GOLDEN / "tight.sgd")
    assert not {"torch", "triton"} & set(loaded.split())
