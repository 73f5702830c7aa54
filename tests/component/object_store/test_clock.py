"""A machine whose clock is wrong: the store or the certificates say so, and nothing else happens."""

from __future__ import annotations

import datetime
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sync_runtime.errors import SignatureError
from sync_runtime.transport.object_store.folder import FolderStore
from sync_runtime.transport.object_store.latest import utc_now
from sync_runtime.transport.object_store.reader import ReadSettings, StoreReader
from sync_runtime.transport.object_store.seal import Seal
from tests.support.children import REPOSITORY
from tests.support.identities import GROUP_UID
from tests.support.s3 import S3Server
from tests.support.stores import TrainerSide

SHIM = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

int clock_gettime(clockid_t id, struct timespec *at) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int done = real(id, at);
    if (!done && id == CLOCK_REALTIME) at->tv_sec += atol(getenv("CLOCK_AHEAD_S"));
    return done;
}
"""
PROGRAM = """
import sys
from pathlib import Path
from sync_runtime.errors import SyncError
from sync_runtime.transport.object_store.remote import RemoteStore
try:
    RemoteStore(sys.argv[1], "clock", Path(sys.argv[2])).put("latest", b"x")
except SyncError as error:
    sys.stdout.write(f"{type(error).__name__}: {error}")
else:
    sys.stdout.write("put")
"""


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("ahead_s", "said"), [(300, "put"), (-300, "put"), (3600, "StoreClock"), (-3600, "StoreClock")]
)
def test_a_store_that_does_not_believe_the_clock_is_named(
    ahead_s: int, said: str, server: S3Server, tmp_path: Path
) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler on this machine to make a clock that is wrong")
    (tmp_path / "shim.c").write_text(SHIM)
    library = tmp_path / "shim.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, tmp_path / "shim.c", "-ldl"], check=True)
    environment = {**os.environ, "LD_PRELOAD": str(library), "CLOCK_AHEAD_S": str(ahead_s)}
    command = [sys.executable, "-c", PROGRAM, server.url, str(server.credentials)]
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.startswith(said), done.stdout + done.stderr


def test_a_reader_whose_clock_is_weeks_off_trusts_nothing_and_goes_on_when_it_is_set(
    tmp_path: Path, trainer: TrainerSide
) -> None:
    store = FolderStore(tmp_path / "store")
    publisher = trainer.begun(store)
    ahead = [datetime.timedelta(days=20)]
    settings = ReadSettings(now=lambda: utc_now() + ahead[0])
    reader = StoreReader(store, GROUP_UID, trainer.trusted(), Seal(GROUP_UID), settings=settings)
    for wrong_days in (20, -20):
        ahead[0] = datetime.timedelta(days=wrong_days)
        with pytest.raises(SignatureError):
            reader.poll()
    ahead[0] = datetime.timedelta(minutes=5)
    assert reader.poll() is not None
    publisher.close()
