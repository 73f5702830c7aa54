"""A real Jaeger for tests: started once per test run, and asked until a trace is whole.

Nothing is built here: where it has not been built, tests skip and say how to get it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

import pytest

from sync_runtime.telemetry.waterfall import Trace, read_traces, search_path
from tools import jaeger
from tools.jaeger import Jaeger

HOW = "Jaeger is not built; `python -m tools.kube build jaeger` does it"


@contextlib.contextmanager
def started(factory: pytest.TempPathFactory) -> Iterator[Jaeger]:
    """One Jaeger; skips where there is none."""
    if not jaeger.is_built():
        pytest.skip(HOW)
    with jaeger.running(factory.mktemp("jaeger")) as found:
        yield found


def whole_trace(
    backend: Jaeger, group_uid: str, seq: int, is_whole: Callable[[Trace], bool], timeout_s: float = 30.0
) -> Trace:
    """The trace of a version, once it is whole."""
    end_s = time.monotonic() + timeout_s
    found: tuple[Trace, ...] = ()
    while time.monotonic() < end_s:
        found = read_traces(backend.ask(search_path(group_uid=group_uid, seq=seq)))
        if len(found) == 1 and is_whole(found[0]):
            return found[0]
        time.sleep(0.2)
    have = [sorted((span.member, span.name) for span in trace.spans) for trace in found]
    raise AssertionError(f"version {seq} was not one whole trace within {timeout_s:g} s; there is {have}")
