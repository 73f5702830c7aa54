"""Bytes of the spool are mapped for the moment of their use: a sidecar's memory does not grow with its objects."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.children import REPOSITORY

OBJECT_BYTES = 48 << 20
PROGRAM = f"""
import sys
from pathlib import Path
from tests.unit.bucket.samples import cut, envelope_for, link, named, open_spool, payload, put, store

def resident_bytes():
    fields = Path("/proc/self/status").read_text().split()
    return int(fields[fields.index("VmRSS:") + 1]) << 10

piece = payload(1 << 20)
with open_spool(Path(sys.argv[1])) as spool:
    worst = before = resident_bytes()
    for seq in (1, 2):
        writer = spool.create(link(seq), "ab" * 32, 1 << 20)
        for _ in range({OBJECT_BYTES} >> 20):
            for bucket in writer.write(piece):
                writer.read(bucket.index)[1].tobytes()
            worst = max(worst, resident_bytes())
        writer.finish()
        stored = writer.commit(envelope_for(link(seq), writer.buckets))
        for index in range(stored.num_buckets):
            offset, data, sha256 = stored.read(index)
            data.tobytes()
            worst = max(worst, resident_bytes())
    print(worst - before)
"""


@pytest.mark.timeout(60)
def test_resident_memory_stays_flat_while_objects_pass_through(quick_folder: Path) -> None:
    if not Path("/proc/self/status").is_file():
        pytest.skip("this system does not tell a process's memory in /proc")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(quick_folder)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < OBJECT_BYTES // 2
