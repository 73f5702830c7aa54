"""What becomes of every tensor of a checkpoint in an engine: changed in place, copied anew, loaded anew, or kept. Pure.

From the recording of a loader follows, by canonical name:

    direct     the parameter's own memory is the tensor, or one rectangle of it: O(changed)
    replayed   copied elsewhere, twice, in pieces or in another dtype: a shadow is kept, and its copies are made again
    reloaded   the loader computes, or the engine repacks what was loaded: a shadow is kept, and its module loaded again
    aside      the loader takes nothing of it (another rank does, or nobody): a shadow, where somebody has to have it
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import torch

from sync_runtime.errors import LayoutError
from sync_runtime.library.engines.coordinates import Copy, Placed, matrix_of, placed
from sync_runtime.library.engines.recording import Meta, Recording, Wanted

SHOWN = 3
"""Names in a message."""


@dataclass(frozen=True)
class Direct:
    """Memory of a parameter that is a tensor's, or a rectangle of it."""

    parameter: str
    place: Placed


@dataclass(frozen=True)
class Plan:
    """Where every tensor is kept and how it gets into the engine."""

    direct: Mapping[str, Direct]
    replayed: Mapping[str, tuple[Copy, ...]]
    reloaded: Mapping[str, tuple[str, ...]]
    """By module: the names that it is loaded from."""
    aside: frozenset[str]

    @property
    def shadowed(self) -> frozenset[str]:
        """Names whose elements are kept beside the engine's memory."""
        return frozenset(self.replayed).union(*self.reloaded.values(), self.aside)


def make_plan(
    recording: Recording, wanted: Wanted, dtypes: Mapping[str, torch.dtype], *, repacked: Collection[str] = (),
    whole_below: int = 0,
) -> Plan:  # fmt: skip
    """Sorts the names.

    Args:
        recording: what the loader did.
        wanted: all names.
        dtypes: of the engine's parameters and buffers.
        repacked: modules whose memory is not what their loader filled.
        whole_below: tensors with fewer elements are kept whole, also where only a rectangle is in the engine.
    """
    if recording.lost:
        raise LayoutError(_refusal(recording.lost))
    modules = {module_of(parameter) for parameter in recording.computed} | set(repacked)
    by_name: dict[str, list[Copy]] = {}
    loaded: dict[str, set[str]] = {}
    for copy in recording.copies:
        if module_of(copy.parameter) in modules:
            loaded.setdefault(module_of(copy.parameter), set()).add(copy.name)
        else:
            by_name.setdefault(copy.name, []).append(copy)
    for parameter, names in recording.computed.items():
        loaded.setdefault(module_of(parameter), set()).update(names)
    reloaded = {module: tuple(name for name in wanted if name in names) for module, names in loaded.items()}
    anew = frozenset().union(*reloaded.values())
    direct: dict[str, Direct] = {}
    replayed: dict[str, tuple[Copy, ...]] = {}
    for name, copies in by_name.items():
        found = None if name in anew else _direct(copies, wanted[name], dtypes, whole_below)
        if found is None:
            replayed[name] = tuple(copies)
        else:
            direct[name] = found
    _check_apart(direct)
    return Plan(direct, replayed, reloaded, frozenset(wanted) - frozenset(by_name) - anew)


def module_of(parameter: str) -> str:
    """The path of the module that owns a parameter."""
    return parameter.rpartition(".")[0]


def _direct(copies: Sequence[Copy], wanted: Meta, dtypes: Mapping[str, torch.dtype], whole_below: int) -> Direct | None:
    shape, dtype = wanted
    if len(copies) != 1 or dtypes[copies[0].parameter] != dtype:
        return None
    found = placed(copies[0], shape)
    if found is None:
        return None
    rows, cols = matrix_of(shape)
    is_whole = (found.rectangle.rows, found.rectangle.cols) == (rows, cols)
    return None if rows * cols < whole_below and not is_whole else Direct(copies[0].parameter, found)


def _check_apart(direct: Mapping[str, Direct]) -> None:
    """Two names in one memory would each undo the other."""
    taken: dict[object, str] = {}
    for name, one in direct.items():
        key = (one.parameter, one.place.memory)
        if key in taken:
            raise LayoutError(
                f"{taken[key]!r} and {name!r} are one memory in the engine: publish one of them, and the other as tied"
            )
        taken[key] = name


def _refusal(lost: Mapping[str, str]) -> str:
    told = "; ".join(f"{name!r}: {why}" for name, why in list(lost.items())[:SHOWN])
    more = f" and {len(lost) - SHOWN} more" if len(lost) > SHOWN else ""
    return (
        f"the model's loader cannot be followed ({told}{more}): this model needs `/update_weights` of a backend that "
        "sends whole tensors"
    )
