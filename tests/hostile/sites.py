"""The places where readers refuse: every `raise` of the parse path, and which of them an error came from.

Compiled loops return fault numbers that one `raise` turns into a sentence; each fault counts as a place of its own.
Read from the sources, so that a new check is on the list the day it is written.
"""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from sync_runtime.codec.cpu import fast, rans
from sync_runtime.errors import SyncError

READERS: Mapping[str, frozenset[str]] = {
    "sync_runtime.codec.frame": frozenset(),
    "sync_runtime.codec.tables": frozenset(),
    "sync_runtime.codec.cpu.anchor": frozenset(),
    "sync_runtime.codec.cpu.blocks": frozenset({"encode_block", "_smallest"}),
    "sync_runtime.codec.cpu.fast": frozenset(),
    "sync_runtime.codec.cpu.sections": frozenset(),
    "sync_runtime.codec.cpu.tight": frozenset(),
    "sync_runtime.bucket.manifest": frozenset({"pack_envelope"}),
    "sync_runtime.delta.apply": frozenset(),
    "sync_runtime.offline.anchors": frozenset(),
    "sync_runtime.offline.deltafile": frozenset({"replacing"}),
    "sync_runtime.offline.objects": frozenset({"_old"}),
    "sync_runtime.offline.staging": frozenset(),
    "sync_runtime.tensors.blocks": frozenset(),
    "sync_runtime.tensors.digest": frozenset(),
    "sync_runtime.tensors.layout": frozenset(),
}
"""Modules that see hostile bytes, each with its functions that only writers call."""
FAULTS: Mapping[str, tuple[str, ...]] = {
    "codec/cpu/fast.py": tuple(fast._FAULTS.values()),
    "codec/cpu/tight.py": tuple(rans.FAULTS.values()),
    "codec/cpu/anchor.py": tuple(rans.FAULTS[number] for number in (1, 2, 4)),
}
"""Faults of compiled loops, by the file that turns them into errors."""
UNMET: Mapping[tuple[str, str], str] = {
    ("delta/apply.py", "a position lies outside block"): "decoders refuse such positions before",
    ("codec/cpu/blocks.py", "the old weights are needed"): "a receiver always has the base at hand",
    ("codec/cpu/blocks.py", "MODE_NAMES.get"): "the frame refuses the modes of anchors in a delta before",
    ("offline/deltafile.py", "this object is an anchor"): "opening the file refuses an anchor before",
    ("tensors/layout.py", "a layout has at most"): "it takes a document of many megabytes",
    ("tensors/layout.py", "the limit is {limit_bytes}"): "it takes a document of hundreds of megabytes",
    ("bucket/manifest.py", "a manifest has at most"): "it takes a document of hundreds of megabytes",
    ("tensors/blocks.py", "table groups"): "it takes a document of many megabytes",
}
"""Checks that the fuzzer's small inputs cannot meet, by file and a piece of their sentence, and why."""


class Site(NamedTuple):
    """One place: a line, and the compiled loop's fault where the line speaks for several."""

    file: str
    line: int
    fault: str = ""
    unmet_because: str = ""
    """Why no small input gets here; empty where one does."""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" + (f" ({self.fault})" if self.fault else "")


class Reached(NamedTuple):
    """How an attempt ended: which error, where, in which mode of block (0: none at hand)."""

    error: str
    site: Site | None
    """None: an error that the target itself raised."""
    mode: int


@cache
def all_sites() -> frozenset[Site]:
    """Every place of every reader."""
    return frozenset(site for module in READERS for sites in _ranges(module).values() for site in sites)


def reached_by(error: SyncError) -> Reached:
    """Where an error came from."""
    mode, last = 0, None
    trace: TracebackType | None = error.__traceback__
    while trace is not None:
        record = trace.tb_frame.f_locals.get("record")
        mode = getattr(record, "mode", mode)
        last = trace
        trace = trace.tb_next
    site = None if last is None else _site(last.tb_frame.f_code.co_filename, last.tb_lineno, str(error))
    return Reached(type(error).__name__, site, mode)


def _site(file_name: str, line: int, sentence: str) -> Site | None:
    for module in READERS:
        if _path(module) == file_name:
            for (first, last), sites in _ranges(module).items():
                if first <= line <= last:
                    return next((site for site in sites if not site.fault or sentence.endswith(site.fault)), None)
    return None


@cache
def _path(module: str) -> str:
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise ImportError(module)
    return spec.origin


@cache
def _ranges(module: str) -> dict[tuple[int, int], tuple[Site, ...]]:
    """Lines of each raise, with its places."""
    path = Path(_path(module))
    source, name = path.read_text(encoding="utf-8"), module.removeprefix("sync_runtime.").replace(".", "/") + ".py"
    found = {}
    for node in _raises(ast.parse(source), READERS[module]):
        text = ast.get_source_segment(source, node) or ""
        faults = FAULTS[name] if "FAULTS[" in text else ("",)
        lines = (node.lineno, node.end_lineno or node.lineno)
        found[lines] = tuple(Site(name, node.lineno, fault, _reason(name, text)) for fault in faults)
    return found


def _reason(name: str, text: str) -> str:
    return next((reason for (file, piece), reason in UNMET.items() if file == name and piece in text), "")


def _raises(tree: ast.AST, without: frozenset[str]) -> Iterator[ast.Raise]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef) and node.name in without:
            continue
        if isinstance(node, ast.Raise) and node.exc is not None:
            yield node
        yield from _raises(node, without)
