"""An engine's memory under the names of a checkpoint: views where memory allows it, shadows where it does not.

Views are the engine's own parameters: they are read for every digest and written in the pause, so a map that has become
stale shows in the next scrub. Shadows are kept in the checkpoint's form; `flush` brings them into the engine, `reveal`
brings back what the engine has, so that a scrub sees through them too. Knows no engine by name and no sidecar.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from math import prod

import torch

from sync_runtime.errors import LayoutError
from sync_runtime.library.cuts import Cut
from sync_runtime.library.engines.coordinates import NOWHERE, Rectangle, Region, matrix_of
from sync_runtime.library.engines.fingerprints import bits_of, fingerprint, spoil
from sync_runtime.library.engines.loadplan import Plan
from sync_runtime.library.engines.recording import Wanted, region_of, state_of
from sync_runtime.library.shards import Shard
from sync_runtime.tensors import layout

Reload = Callable[[Sequence[str], Iterator[tuple[str, torch.Tensor]]], None]
"""Loads modules again from all the tensors that they are made of."""


@dataclass(frozen=True)
class Ranks:
    """The processes that hold an engine's weights together."""

    number: int = 0
    count: int = 1
    gather: Callable[[torch.Tensor], list[torch.Tensor]] = lambda tensor: [tensor]
    """What every rank says, in order; all of them call it at the same moment."""


@dataclass(frozen=True)
class Content:
    """What an engine is to hold."""

    wanted: Wanted
    ties: Mapping[str, str]
    cuts: Mapping[str, Cut] = field(default_factory=dict)
    """Where the trainer's layout is cut."""


class MappedEngine:
    """A model whose loader was followed (`loadplan.Plan`)."""

    def __init__(
        self, model: torch.nn.Module, plan: Plan, content: Content, *, ranks: Ranks | None = None,
        reload: Reload | None = None, stored: Callable[[str], torch.Tensor | None] = lambda _: None,
    ) -> None:  # fmt: skip
        if plan.reloaded and reload is None:
            raise LayoutError(f"{next(iter(plan.reloaded))!r} is repacked after loading, and nobody can load it again")
        self._model, self._plan, self._content = model, plan, content
        self._ranks, self._reload = ranks or Ranks(), reload
        state = dict(state_of(model))
        named = {one.parameter for one in plan.direct.values()}
        named.update(copy.parameter for copies in plan.replayed.values() for copy in copies)
        self._geometry = {name: _geometry(state[name]) for name in named}
        self._device = next(iter(model.parameters())).device
        self._views: tuple[object, Mapping[str, torch.Tensor]] = ((), {})
        self._marks: dict[str, tuple[int, ...]] = {}
        self._held = self._share_out()
        self._shadows = {name: self._empty(name) for name in content.wanted if name not in plan.direct}
        self._fill(stored)
        self._prove()

    # --- the library's Engine ----------------------------------------------------------------------------------------

    def tensors(self) -> Mapping[str, torch.Tensor]:
        """Views and shadows by canonical name; raises LayoutError where a parameter has become another."""
        parameters = self._parameters()
        where = tuple((name, one.data_ptr()) for name, one in parameters.items())
        if where != self._views[0]:
            found = {name: self._view(name, parameters) for name in self._content.wanted}
            self._views = (where, found)
        return self._views[1]

    def ties(self) -> Mapping[str, str]:
        """Names that the trainer ties."""
        return self._content.ties

    def shards(self) -> Mapping[str, Shard]:
        """Tensors as the layout cuts them, and all large ones of several ranks."""
        found, cuts = {}, self._content.cuts
        for name, tensor in self.tensors().items():
            shape = self._content.wanted[name][0]
            if name in cuts or (self._ranks.count > 1 and prod(shape) >= layout.SMALL_ELEMENTS):
                mine, counted = self._held[name]
                found[name] = Shard(tensor, shape, (mine.row, mine.col), cuts.get(name, (None, None)), counted)
        return found

    # --- into the engine and back ------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Brings shadows into the engine. Repeatable: what was interrupted is done again."""
        with _settled(self._device):
            for shadow, live in self._copies():
                live.copy_(shadow)
            if self._reload is None or not self._plan.reloaded:
                return
            names = dict.fromkeys(name for names in self._plan.reloaded.values() for name in names)
            self._reload(tuple(self._plan.reloaded), ((name, self._shadows[name]) for name in names))
            self._marks = self._fingerprints()

    def settle(self) -> None:
        """Loads repacked modules again where somebody else has just packed what was packed."""
        if self._fingerprints() != self._marks:
            self.flush()

    def reveal(self) -> None:
        """Makes shadows tell what the engine has: its bits, or others than they should be where those cannot be had."""
        with _settled(self._device):
            for shadow, live in self._copies():
                if shadow.dtype == live.dtype:
                    shadow.copy_(live)
                else:
                    spoil(shadow, bits_of(live.contiguous()) != bits_of(shadow.to(live.dtype).contiguous()))
            found = self._fingerprints()
            for module in (module for module, mark in self._marks.items() if found[module] != mark):
                for name in self._plan.reloaded[module]:
                    spoil(self._shadows[name].reshape(-1)[:1], None)
            self._marks = found

    # --- inside ------------------------------------------------------------------------------------------------------

    def _share_out(self) -> dict[str, tuple[Rectangle, bool]]:
        """What each rank holds of every tensor: the lowest of those that hold the same counts it."""
        mine = torch.tensor([self._rectangle(name) for name in self._content.wanted], dtype=torch.int64).reshape(-1, 4)
        everyone = torch.stack(self._ranks.gather(mine))
        nobody = (everyone == 0).all(dim=2).all(dim=0)
        found = {}
        for at, (name, (shape, _)) in enumerate(self._content.wanted.items()):
            rectangle = Rectangle(*mine[at].tolist())
            if nobody[at] and self._ranks.number == 0:
                rectangle = Rectangle(0, 0, *matrix_of(shape))
            lower = (everyone[: self._ranks.number, at] == mine[at]).all(dim=1).any()
            found[name] = (rectangle, not bool(lower))
        return found

    def _rectangle(self, name: str) -> Rectangle:
        shape = self._content.wanted[name][0]
        if name in self._plan.direct:
            return self._plan.direct[name].place.rectangle
        is_large = prod(shape) >= layout.SMALL_ELEMENTS
        return NOWHERE if name in self._plan.aside and is_large else Rectangle(0, 0, *matrix_of(shape))

    def _is_whole(self, name: str) -> bool:
        return self._held[name][0][2:] == matrix_of(self._content.wanted[name][0])

    def _empty(self, name: str) -> torch.Tensor:
        shape, dtype = self._content.wanted[name]
        return torch.zeros(shape if self._is_whole(name) else (0,), dtype=dtype, device=self._device)

    def _parameters(self) -> dict[str, torch.Tensor]:
        state = dict(state_of(self._model))
        for name, geometry in self._geometry.items():
            if name not in state or _geometry(state[name]) != geometry:
                raise LayoutError(
                    f"the parameter {name!r} is not the one whose loader was followed: open the engine's plug-in again"
                )
        return {name: state[name] for name in self._geometry}

    def _view(self, name: str, parameters: Mapping[str, torch.Tensor]) -> torch.Tensor:
        if name in self._shadows:
            return self._shadows[name]
        direct = self._plan.direct[name]
        seen = _strided(parameters[direct.parameter], direct.place.memory)
        return seen.view(self._content.wanted[name][0]) if self._is_whole(name) else seen

    def _copies(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Regions of shadows beside the engine's memory."""
        parameters = self._parameters()
        for name, copies in self._plan.replayed.items():
            for copy in copies:
                yield _strided(self._shadows[name], copy.source), _strided(parameters[copy.parameter], copy.target)

    def _fill(self, stored: Callable[[str], torch.Tensor | None]) -> None:
        """The first content of shadows: what the engine has, else what it was loaded from."""
        with _settled(self._device):
            for shadow, live in self._copies():
                shadow.copy_(live)
            self._complete()
            for name in dict.fromkeys((*self._plan.aside, *(n for ns in self._plan.reloaded.values() for n in ns))):
                found = stored(name) if self._shadows[name].numel() else None
                if found is None and self._shadows[name].numel() and name not in self._plan.aside:
                    raise LayoutError(f"{name!r} is loaded through its module, and is in no checkpoint on this disk")
                if found is not None:
                    self._shadows[name].copy_(found.to(self._shadows[name].dtype).reshape(self._shadows[name].shape))
            self._marks = self._fingerprints()

    def _prove(self) -> None:
        """Loads repacked modules again from what they were loaded from: that must give the bits that they have.

        Engines reload modules in their own way, and some of those ways are wrong. What is wrong is put back.
        """
        if self._reload is None:
            return
        for module, names in self._plan.reloaded.items():
            before = {name: one.detach().clone() for name, one in self._state_of(module).items()}
            is_same = False
            try:
                self._reload((module,), ((name, self._shadows[name]) for name in names))
                is_same = fingerprint(self._state_of(module)) == self._marks[module]
            finally:
                for name, one in self._state_of(module).items() if not is_same else ():
                    one.detach().copy_(before[name])
            if not is_same:
                raise LayoutError(
                    f"{module!r} does not become what it was when the engine loads it again from its checkpoint: the "
                    "engine cannot reload this kind of module, or was not loaded from that checkpoint"
                )

    def _state_of(self, module: str) -> Mapping[str, torch.Tensor]:
        found = self._model.get_submodule(module).state_dict(keep_vars=True)
        return {name: one for name, one in found.items() if isinstance(one, torch.Tensor)}

    def _complete(self) -> None:
        """Shadows of tensors that are spread over ranks: everyone tells the others what it has."""
        if self._ranks.count == 1:
            return
        for name, copies in self._plan.replayed.items():
            shadow = self._shadows[name]
            has = torch.zeros(shadow.shape, dtype=torch.bool)
            for copy in copies:
                _strided(has, copy.source).fill_(True)
            octets = bits_of(shadow.cpu().contiguous()).view(torch.uint8).to(torch.int32).reshape(shadow.numel(), -1)
            told = torch.stack(self._ranks.gather((octets + 1) * has.reshape(-1, 1)))
            whole = (told.amax(dim=0) - 1).clamp(min=0).to(torch.uint8).contiguous()
            shadow.copy_(whole.view(-1).view(shadow.dtype).reshape(shadow.shape))

    def _fingerprints(self) -> dict[str, tuple[int, ...]]:
        return {module: fingerprint(self._state_of(module)) for module in self._plan.reloaded}


@contextmanager
def _settled(device: torch.device) -> Iterator[None]:
    """Without gradients, on the device; other streams may read what was written when this is over."""
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        if device.type == "cuda":
            stack.enter_context(torch.cuda.device(device))
            stack.callback(lambda: torch.cuda.current_stream(device).synchronize())
        yield


def _geometry(tensor: torch.Tensor) -> tuple[object, ...]:
    return (*region_of(tensor), tensor.dtype, tensor.device)


def _strided(tensor: torch.Tensor, region: Region) -> torch.Tensor:
    return tensor.detach().as_subclass(torch.Tensor).as_strided(region.shape, region.stride, region.offset)
