"""Finds out where a loader puts the tensors of a checkpoint, by running it on tensors without memory.

The loader is a model's own `load_weights`: it knows what is fused, cut for a rank, padded, filtered or tied. It gets
*probes*: tensors on the meta device that know their name, stay what they are under views, and write down where they are
copied to. Nothing is written: a guard stands before every parameter meanwhile. Knows no engine and no sidecar.
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from sync_runtime.library.engines.coordinates import Copy, Region, overlap

Named = tuple[str, torch.Tensor]
Load = Callable[[Iterable[Named]], object]
Meta = tuple[tuple[int, ...], torch.dtype]
"""Shape and dtype."""
Wanted = Mapping[str, Meta]
"""By canonical name."""

_CASTS = {"float": torch.float32, "double": torch.float64, "half": torch.float16, "bfloat16": torch.bfloat16}
_MOVES = {"cpu", "cuda", "pin_memory", "contiguous", "clone"}
"""Make a copy elsewhere, of the same elements."""
_KEEP_ELEMENTS = {"requires_grad_", "squeeze_", "unsqueeze_", "transpose_", "t_", "swapaxes_"}
_FAILURES = (
    RuntimeError,
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    AttributeError,
    AssertionError,
    NotImplementedError,
)
"""What a loader raises that cannot live with a tensor without elements."""


@dataclass
class Recording:
    """What a loader did with every name."""

    copies: list[Copy] = field(default_factory=list)
    computed: dict[str, set[str]] = field(default_factory=dict)
    """Parameter -> names that are not merely copied into it: they are cast, joined, or changed afterwards."""
    lost: dict[str, str] = field(default_factory=dict)
    """Name -> why nobody can say where it went."""
    touched: set[str] = field(default_factory=set)
    """Names that the loader did something with; all others it leaves aside."""


class Probe(torch.Tensor):
    """Stands for a checkpoint's tensor. `made_of`: names; `is_view`: of the one tensor, with its elements unchanged."""

    recorder: Recorder
    made_of: frozenset[str]
    is_view: bool

    @classmethod
    def make(cls, recorder: Recorder, meta: torch.Tensor, made_of: frozenset[str], *, is_view: bool) -> Self:
        """A probe over a tensor on the meta device."""
        made = torch.Tensor._make_subclass(cls, meta)
        made.recorder, made.made_of, made.is_view = recorder, made_of, is_view
        return made

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Every use of a probe comes here."""
        del types
        found = next(_probes((args, kwargs or {})))
        return found.recorder.use(func, args, kwargs or {})


class Recorder:
    """One recording of one model."""

    def __init__(self, parameters: Mapping[str, torch.Tensor]) -> None:
        self.found = Recording()
        self._by_memory: dict[int, tuple[str, torch.Tensor]] = {}
        for name, tensor in parameters.items():
            self._by_memory.setdefault(_memory(tensor), (name, tensor))
        self._changed: set[int] = set()
        """Memories of probes that a loader wrote into."""
        self._fills: list[tuple[str, Region]] = []
        self._now = ""

    def run(self, load: Load, wanted: Wanted) -> Recording:
        """Runs the loader until it has seen every name; where it fails at one, it goes on behind that one."""
        names = list(wanted)
        at = 0
        while at < len(names):
            seen = [at]
            try:
                with torch.no_grad(), _Guard(self):
                    load(self._probes(names, wanted, seen))
                at = len(names)
            except _FAILURES as error:
                if not self._now:
                    raise
                self.found.lost[self._now] = f"{type(error).__name__}: {error}"
                at = seen[0]
        self._judge_fills()
        return self.found

    def _probes(self, names: list[str], wanted: Wanted, seen: list[int]) -> Iterator[Named]:
        for at in range(seen[0], len(names)):
            seen[0], self._now = at + 1, names[at]
            shape, dtype = wanted[names[at]]
            meta = torch.empty(shape, dtype=dtype, device="meta")
            yield names[at], Probe.make(self, meta, frozenset([names[at]]), is_view=True)

    def use(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A function of torch's that met a probe."""
        name = getattr(func, "__name__", "")
        if name == "copy_" and isinstance(args[1], Probe):
            return self._copy(args[0], args[1])
        if name == "__setitem__" and isinstance(args[2], Probe) and not isinstance(args[0], Probe):
            self._copy(args[0][args[1]], args[2])
            return None
        if name in _MOVES or name in _CASTS or name in ("to", "type", "type_as"):
            return self._moved(args[0], _dtype_wanted(name, args[1:], kwargs))
        return self._plain(func, name, args, kwargs)

    def _moved(self, probe: Probe, dtype: torch.dtype | None) -> Probe:
        if dtype is None or dtype == probe.dtype:
            return probe
        self.found.touched.update(probe.made_of)
        return Probe.make(self, torch.empty(probe.shape, dtype=dtype, device="meta"), probe.made_of, is_view=False)

    def _plain(self, func: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Runs it on the meta device; views stay probes of their tensor, all else is made of it."""
        used = list(_probes((args, kwargs)))
        names = frozenset().union(*(probe.made_of for probe in used))
        if name.endswith("_") and not name.endswith("__") and name not in _KEEP_ELEMENTS:
            self._changed.update(_memory(probe) for probe in used)
        with torch._C.DisableTorchFunctionSubclass():
            out = func(*_bare(args), **_bare(kwargs))
            views = {_memory(probe): probe.dtype for probe in used if probe.is_view}

        def wrapped(one: Any) -> Any:
            if isinstance(one, list | tuple) and not isinstance(one, torch.Size):
                return type(one)(wrapped(part) for part in one)
            if not isinstance(one, torch.Tensor):
                return one
            return Probe.make(self, one, names, is_view=views.get(_memory(one)) == one.dtype)

        return wrapped(out)

    def _copy(self, target: torch.Tensor, probe: Probe) -> torch.Tensor:
        self.found.touched.update(probe.made_of)
        if isinstance(target, Probe):
            self._changed.add(_memory(target))
            return target
        owner = self._by_memory.get(_memory(target))
        if owner is None:
            for name in probe.made_of:
                self.found.lost[name] = "it is copied into memory that is no parameter of the model"
            return target
        parameter, region = owner[0], region_of(target)
        shaped = _bare(probe).expand(target.shape)
        if probe.is_view and _memory(probe) not in self._changed and shaped.numel() == probe.numel():
            (name,) = probe.made_of
            self.found.copies.append(Copy(name, region_of(shaped), parameter, region))
        else:
            self.found.computed.setdefault(parameter, set()).update(probe.made_of)
        return target

    def is_guarded(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is a part of the model."""
        return _memory(tensor) in self._by_memory

    def written(self, tensor: torch.Tensor, *, fills: bool) -> None:
        """Somebody was about to write into a parameter, and not from a probe."""
        parameter = self._by_memory[_memory(tensor)][0]
        if fills:
            self._fills.append((parameter, region_of(tensor)))
        else:
            self.found.computed.setdefault(parameter, set())

    def _judge_fills(self) -> None:
        """Padding is filled beside what is copied; what is filled over, or changed after a copy, was computed."""
        for copy in self.found.copies:
            if any(name == copy.parameter and overlap(region, copy.target) for name, region in self._fills):
                self.found.computed.setdefault(copy.parameter, set())
        for copy in self.found.copies:
            if copy.parameter in self.found.computed:
                self.found.computed[copy.parameter].add(copy.name)


class _Guard(TorchDispatchMode):
    """Lets nothing write into the model."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = kwargs or {}
        if func._schema.is_mutable:
            for at, argument in enumerate(func._schema.arguments):
                value = args[at] if at < len(args) else given.get(argument.name)
                writes = argument.alias_info is not None and argument.alias_info.is_write
                if writes and isinstance(value, torch.Tensor) and self._recorder.is_guarded(value):
                    self._recorder.written(value, fills=func._opname in ("fill_", "zero_"))
                    return value
        return func(*args, **given)


def region_of(tensor: torch.Tensor) -> Region:
    """Where a tensor's elements lie in its storage."""
    return Region(int(tensor.storage_offset()), tuple(tensor.shape), tuple(tensor.stride()))


def record(model: torch.nn.Module, load: Load, wanted: Wanted) -> Recording:
    """Where `load` puts tensors of these shapes and dtypes in a model; neither weights nor buffers change."""
    return Recorder(dict(state_of(model))).run(load, wanted)


def state_of(model: torch.nn.Module) -> Iterator[Named]:
    """All memory of a model: parameters and buffers, by the path of their module."""
    yield from model.named_parameters(remove_duplicate=False)
    yield from model.named_buffers(remove_duplicate=False)


def _memory(tensor: torch.Tensor) -> int:
    with torch._C.DisableTorchFunctionSubclass():
        return int(tensor.untyped_storage()._cdata)


def _probes(nested: Any) -> Iterator[Probe]:
    if isinstance(nested, Probe):
        yield nested
    elif isinstance(nested, list | tuple):
        for one in nested:
            yield from _probes(one)
    elif isinstance(nested, dict):
        yield from _probes(list(nested.values()))


def _bare(nested: Any) -> Any:
    if isinstance(nested, Probe):
        with torch._C.DisableTorchFunctionSubclass():
            return nested.as_subclass(torch.Tensor)
    if isinstance(nested, list | tuple) and not isinstance(nested, torch.Size):
        return type(nested)(_bare(one) for one in nested)
    if isinstance(nested, dict):
        return {name: _bare(one) for name, one in nested.items()}
    return nested


def _dtype_wanted(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.dtype | None:
    if name in _CASTS:
        return _CASTS[name]
    for value in (*args, *kwargs.values()):
        if isinstance(value, torch.dtype):
            return value
        if isinstance(value, torch.Tensor):
            return value.dtype
    return None
