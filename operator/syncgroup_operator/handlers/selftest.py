"""The self-test of the operator's image: everything that a replica will need, once and small, without a cluster.

    python -m syncgroup_operator --self-test

Makes no network connection and writes no file.
"""

from __future__ import annotations

import datetime
import importlib
import importlib.metadata
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from sync_runtime.contract.names import GROUP_VERSION
from sync_runtime.contract.selftest import Step, run_steps, surroundings
from syncgroup_operator.errors import OperatorError

DISTRIBUTION: Final = "syncgroup"
MODULES: Final = (
    "kopf", "kubernetes.aio", "prometheus_client", "opentelemetry.sdk.trace", "yaml", "syncgroup_operator.handlers.run",
    "syncgroup_operator.execute.engine", "syncgroup_operator.kube",
)  # fmt: skip
BROKEN: Final = (OperatorError, ImportError, OSError, ValueError, RuntimeError, AttributeError)


def version() -> str:
    """Which release this is and which API it speaks."""
    try:
        found = importlib.metadata.version(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        found = "from a folder that is not installed"
    return f"{DISTRIBUTION} operator {found} (API {GROUP_VERSION})"


def run(environment: Mapping[str, str], say: Callable[[str], None]) -> int:
    """All steps; returns the exit code."""
    return run_steps(steps(environment), say, BROKEN)


def steps(environment: Mapping[str, str]) -> Iterator[Step]:
    """What this image must be able to do."""
    yield Step("imports", check_imports)
    yield Step("settings", lambda: check_settings(environment))
    yield Step("tls", check_tls)
    yield Step("root", surroundings_here)


def check_imports() -> str:
    """Imports all that a replica starts with."""
    for name in MODULES:
        importlib.import_module(name)
    return f"all {len(MODULES)} modules that it starts with are there."


def check_settings(environment: Mapping[str, str]) -> str:
    """The environment of this container, read as a replica would."""
    settings = importlib.import_module("syncgroup_operator.settings").from_environment(environment)
    return f"the environment can be read; pods would get the runtime {settings.runtime_image}."


def check_tls() -> str:
    """A certificate authority that signs for two members, who then talk."""
    selfcheck = importlib.import_module("sync_runtime.identity.selfcheck")
    return str(selfcheck.tls_sentence(datetime.datetime.now(datetime.UTC)))


def surroundings_here() -> str:
    """Who this is, and where it may write."""
    return surroundings(read_only=bool(os.statvfs("/").f_flag & os.ST_RDONLY), uid=os.getuid())
