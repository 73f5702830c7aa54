"""The self-test of an image with the runtime in it: does everything that a sidecar will need, once and small.

    syncgroup sidecar --self-test

Makes no network connection and writes nothing but temporary files. What it needs is imported step by step: an image in
which a package is missing says which.
"""

from __future__ import annotations

import datetime
import importlib
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from sync_runtime.contract.selftest import SelfTestError, Step, run_steps, surroundings
from sync_runtime.errors import SyncError
from syncgroup.errors import CommandError
from syncgroup.output import say

ENV_VARIANT: Final = "SYNCGROUP_IMAGE_VARIANT"
"""Set in images of which more is expected than of the slim one."""
CUDA: Final = "cuda"
SIDECAR_MODULES: Final = (
    "sync_runtime.sidecar", "sync_runtime.control.api", "sync_runtime.membership.api", "sync_runtime.pod.provision",
    "sync_runtime.transport.listener", "opentelemetry.exporter.otlp.proto.http.trace_exporter",
)  # fmt: skip
WORKER_MODULES: Final = ("torch", "triton", "sync_runtime.gpu_worker.server", "sync_runtime.codec.gpu")
MODULE_NAME: Final = "syncgroup_selftest"
MODULE_IN_C: Final = """
#include <Python.h>
static PyObject* answer(PyObject* self, PyObject* none) { return PyLong_FromLong(42); }
static PyMethodDef methods[] = {{"answer", answer, METH_NOARGS, NULL}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "syncgroup_selftest", NULL, -1, methods};
PyMODINIT_FUNC PyInit_syncgroup_selftest(void) { return PyModule_Create(&module); }
"""
BROKEN: Final = (SyncError, CommandError, ImportError, OSError, ValueError, RuntimeError, AttributeError)


def run(environment: dict[str, str]) -> int:
    """All steps; returns the exit code."""
    return run_steps(steps(environment), say, BROKEN)


def steps(environment: dict[str, str]) -> Iterator[Step]:
    """What this image must be able to do."""
    yield Step("imports", lambda: imported(SIDECAR_MODULES))
    yield Step("codec", check_codec)
    yield Step("tls", check_tls)
    yield Step("library", check_library)
    if environment.get(ENV_VARIANT) == CUDA:
        yield Step("compiler", check_compiler)
        yield Step("gpu worker", check_gpu_worker)
    yield Step("root", surroundings_here)


def surroundings_here() -> str:
    """Who this is, and where it may write."""
    return surroundings(read_only=bool(os.statvfs("/").f_flag & os.ST_RDONLY), uid=os.getuid())


def imported(modules: tuple[str, ...]) -> str:
    """Imports all of them."""
    for name in modules:
        importlib.import_module(name)
    return f"all {len(modules)} modules that it starts with are there."


def check_codec() -> str:
    """Deltas of every codec, merged and undone, and an anchor: bit for bit."""
    return str(importlib.import_module("sync_runtime.offline.selfcheck").codec_sentence())


def check_tls() -> str:
    """A certificate authority, two members, one connection."""
    now = datetime.datetime.now(datetime.UTC)
    return str(importlib.import_module("sync_runtime.identity.selfcheck").tls_sentence(now))


def check_library() -> str:
    """What init containers do with this image."""
    library = importlib.import_module("syncgroup.commands.library")
    with tempfile.TemporaryDirectory() as folder:
        copied = library.copied(Path(folder) / "library")
        found, wanted = library.hash_of(copied / library.PACKAGE), library.hash_of(library.source())
    if found != wanted:
        raise SelfTestError("the copied library has other bytes than this one.")
    return f"it can be copied for another container ({wanted[:16]})."


def check_compiler() -> str:
    """A module in C, against Python's headers: what triton makes of every kernel's launcher, by its own means."""
    build = importlib.import_module("triton.runtime.build")
    try:
        made = build.compile_module_from_src(src=MODULE_IN_C, name=MODULE_NAME)
    except subprocess.CalledProcessError as error:
        raise SelfTestError(f"triton cannot compile its launchers: `{error.cmd[0]}` said why, above.") from error
    if made.answer() != 42:
        raise SelfTestError("what triton's compiler makes does not work.")
    return "triton finds a C compiler and Python's headers, and what it makes works."


def check_gpu_worker() -> str:
    """Everything of the GPU worker that can be seen without a GPU."""
    imported(WORKER_MODULES)
    torch = importlib.import_module("torch")
    if torch.version.cuda is None:
        raise SelfTestError("this torch was built without CUDA; install one that has it.")
    if not torch.cuda.is_available():
        return f"torch {torch.__version__} for CUDA {torch.version.cuda} is whole; there is no GPU here to try it on."
    device = torch.cuda.get_device_name()
    if int(torch.ones(1000, dtype=torch.int32, device="cuda").sum().item()) != 1000:
        raise SelfTestError(f"{device} does not count right.")
    return f"torch {torch.__version__} for CUDA {torch.version.cuda} counts right on {device}."
