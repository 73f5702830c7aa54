"""SGLang (0.5.21 or newer): a custom weight loader, and hooks that SGLang finds through their entry point.

    python -m sglang.launch_server --model-path MODEL --custom-weight-loader sync_runtime.library.engines.sglang.apply

Versions arrive in a thread while the engine generates; `/update_weights_from_tensor` with that `load_format` switches
to the newest, between `/begin_weight_update` and `/end_weight_update`. SGLang takes a loader that returns for one that
succeeded, and ends the whole server where one raises: so the loader never raises, and a hook around SGLang's own call
turns what it found into an answer, the same one in all ranks. Knows SGLang, and nothing of deltas.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from sglang.srt.lora.layers import BaseLayerWithLoRA
from sglang.srt.model_loader.loader import DefaultModelLoader, QuantizedRLModelLoader
from sglang.srt.plugins.hook_registry import HookRegistry, HookType
from sglang.srt.runtime_context import get_exec, get_parallel, get_spec

from sync_runtime.errors import LayoutError, LocalError
from sync_runtime.library.cuts import Cuts
from sync_runtime.library.engines.contents import content_of
from sync_runtime.library.engines.fingerprints import fingerprint
from sync_runtime.library.engines.following import FAILURES, Follower, Opening, agreed, map_engine
from sync_runtime.library.engines.mapped import MappedEngine, Ranks
from sync_runtime.library.version import Version

LOADER = "sync_runtime.library.engines.sglang.apply"
"""What `--custom-weight-loader` and `load_format` say."""
_UPDATER = "sglang.srt.model_executor.model_runner_components.weight_updater.WeightUpdater"
_COPYING = {"UnquantizedLinearMethod", "UnquantizedEmbeddingMethod"}
"""Methods that use weights as their loader left them."""
_EXPERTS = "UnquantizedFusedMoEMethod"
_log = logging.getLogger(__name__)
Named = Sequence[tuple[str, torch.Tensor]]


@dataclass(frozen=True)
class Request:
    """What an update asks for. It travels as JSON in the *name* of an empty tensor: SGLang would unpickle any other."""

    seq: int | None = None
    """The oldest version that will do; by default whatever is staged, also nothing."""
    timeout_s: float = 0.0
    """How long to wait for it; requests stand still meanwhile."""
    scrub: bool = False
    """Whether all weights are compared with the version, still in the pause."""
    close: bool = False
    """Hangs up instead: before SGLang gives the memory of weights back. The next update opens again."""
    socket: str | None = None
    """With the update that opens: the sidecar's; by default `SYNCGROUP_SOCKET`, else its place in every pod."""
    layout: str | None = None
    """With the update that opens: the trainer's layout document; by default the checkpoint's tensors."""
    cuts: Cuts | None = None
    """With the update that opens: what `Publisher.cuts` says, or into how many parts; by default one per rank."""
    open_timeout_s: float = 60.0
    patience_s: float = 5.0

    def named_tensors(self) -> list[tuple[str, torch.Tensor]]:
        """As SGLang's `update_weights_from_tensor` takes it."""
        told = {one.name: getattr(self, one.name) for one in fields(self) if getattr(self, one.name) != one.default}
        return [(json.dumps(told), torch.empty(0, dtype=torch.uint8))]

    @classmethod
    def read(cls, named_tensors: Named) -> Request:
        """What was sent; raises LocalError for anything else. Nothing at all is a plain update."""
        if not named_tensors:
            return cls()
        try:
            ((text, _),) = named_tensors
            return cls(**json.loads(text))
        except (ValueError, TypeError) as error:
            known = ", ".join(one.name for one in fields(cls))
            raise LocalError(
                f"an update is one empty tensor whose name is a JSON object with some of {known}: {error}"
            ) from error


def register() -> None:
    """The entry point of `sglang.srt.plugins`: SGLang calls it in every process."""
    for name, hook, kind in (
        ("begin_weight_update", _before_begin, HookType.BEFORE),
        ("update_weights_from_tensor", _answering, HookType.AROUND),
        ("end_weight_update", _after_end, HookType.AFTER),
    ):
        target = f"{_UPDATER}.{name}"
        if not any(hook is known for _, known, _ in HookRegistry._hooks.get(target, ())):
            HookRegistry.register(target, hook, kind)


def apply(model: torch.nn.Module, named_tensors: Named) -> None:
    """SGLang's loader: switches to the newest staged version. What went wrong is in `RANK.failure`; it never raises."""
    if RANK.model_config is None:
        _log.error("nothing was changed: the plug-in of SyncGroup is not loaded (does SGLANG_PLUGINS leave it out?)")
        return
    try:
        RANK.update(model, named_tensors)
    except FAILURES as error:
        _log.warning("weights were not updated: %s", error, exc_info=not isinstance(error, LocalError | LayoutError))
        RANK.failure = str(error) or type(error).__name__


@dataclass
class Rank:
    """What one process of a server follows. SGLang has no place for it, so it is the module's."""

    follower: Follower | None = None
    engine: MappedEngine | None = None
    failure: str | None = None
    model_config: Any = None
    """Of the model that an update is for; None outside of one."""
    was_asked: bool = False
    """Whether an update since `begin_weight_update` was ours: what others load is none of our business."""
    steady: dict[str, tuple[int, ...]] | None = None
    """By repacked module: its memory as requests use it, from just before `begin_weight_update`."""
    kept: dict[str, dict[str, torch.Tensor]] = field(default_factory=dict)
    """The same in full, on the host, while nobody could load such a module again."""

    @property
    def version(self) -> Version | None:
        """What the weights are; None: no version, or half of one."""
        return None if self.follower is None else self.follower.version

    def begin(self, model: torch.nn.Module) -> None:
        """Remembers what repacked modules hold before SGLang undoes their packing."""
        self.was_asked, self.kept = False, {}
        self.steady = {path: fingerprint(_state(model, path)) for path in repacked_modules(model)}

    def update(self, model: torch.nn.Module, named_tensors: Named) -> None:
        """One request, in every rank; raises where it fails in any of them, with the weights of the last version."""
        ranks = _ranks()
        agreed(ranks, lambda: self._settle(model))
        if self.engine is None:
            self._keep(model)
        self.was_asked = True
        request = Request.read(named_tensors)
        if request.close:
            self._keep(model)
            self.close()
            return
        if self.follower is None:
            self._open(model, request, ranks)
        try:
            if self.follower is not None:
                self.follower.update(request.seq, request.timeout_s, scrub=request.scrub)
        finally:
            self.steady = {path: fingerprint(_state(model, path)) for path in self.steady or ()}

    def end(self, model: torch.nn.Module) -> None:
        """SGLang has packed all modules once more, also those that nobody loaded: they get back what they had."""
        kept, self.kept, self.steady = self.kept, {}, None
        if not self.was_asked:
            return
        if self.engine is not None:
            self.engine.settle()
        for path, copies in kept.items():
            for name, one in _state(model, path).items():
                one.detach().copy_(copies[name])

    def close(self) -> None:
        """Hangs up; the weights stay as they are."""
        follower, self.follower, self.engine = self.follower, None, None
        if follower is not None:
            follower.close()

    def _open(self, model: torch.nn.Module, request: Request, ranks: Ranks) -> None:
        engine = mapped(model, self.model_config, request, ranks, lambda: self._settle(model))
        # A repacked module has another form between begin and end: nobody may look at it then on his own.
        opening = Opening(
            request.socket, None, request.open_timeout_s, request.patience_s, False if self.steady else None
        )
        self.follower, self.engine, self.kept = Follower(engine, opening, ranks), engine, {}

    def _keep(self, model: torch.nn.Module) -> None:
        self.kept = {
            path: {name: one.detach().to("cpu", copy=True) for name, one in _state(model, path).items()}
            for path in self.steady or ()
        }

    def _settle(self, model: torch.nn.Module) -> None:
        """Repacked modules as requests use them, whatever `begin_weight_update` made of them."""
        paths = list(repacked_modules(model))
        if self.steady is None and paths:
            raise LocalError(f"{paths[0]!r} is repacked, and nobody saw it before `begin_weight_update`: begin again")
        for path, before in (self.steady or {}).items():
            if fingerprint(_state(model, path)) != before:
                DefaultModelLoader.postprocess_weights(model.get_submodule(path), _device(model))
            if fingerprint(_state(model, path)) != before:
                raise LayoutError(f"SGLang does not bring {path!r} back to what it was: use a plain update of weights")


RANK = Rank()


def mapped(
    model: torch.nn.Module, model_config: Any, request: Request, ranks: Ranks, settle: Callable[[], None]
) -> MappedEngine:
    """A rank's model under canonical names; raises LayoutError for one that cannot be followed."""
    agreed(ranks, lambda: _check(model))
    content, read = agreed(ranks, lambda: content_of(
        Path(model_config.model_path), model_config.dtype, layout=request.layout, cuts=request.cuts, ranks=ranks.count,
        is_tied=getattr(model_config.hf_config, "tie_word_embeddings", False),
    ))  # fmt: skip
    repacked = list(repacked_modules(model))

    @contextmanager
    def loading() -> Iterator[None]:
        for path in repacked:
            DefaultModelLoader.restore_weights_before_loading(model.get_submodule(path), _device(model))
        try:
            yield
        finally:
            settle()

    def reload(modules: Sequence[str], tensors: Iterator[tuple[str, torch.Tensor]]) -> None:
        for path in modules:
            DefaultModelLoader.restore_weights_before_loading(model.get_submodule(path), _device(model))
        model.load_weights(tensors)  # type: ignore[operator]
        for path in modules:
            DefaultModelLoader.postprocess_weights(model.get_submodule(path), _device(model))

    return map_engine(model, content, read, ranks, repacked=repacked, loading=loading, reload=reload)


def repacked_modules(model: torch.nn.Module) -> Iterator[str]:
    """Modules whose memory is not, or may not be, as their loader filled it."""
    for path, module in model.named_modules():
        if list(module.parameters(recurse=False)) and not _is_as_loaded(module):
            yield path


def _is_as_loaded(module: torch.nn.Module) -> bool:
    method = getattr(module, "quant_method", None)
    if getattr(module, "use_intel_amx_backend", False):
        return False
    if method is None or type(method).__name__ in _COPYING:
        return True
    if (
        type(method).__name__ != _EXPERTS
        or _device(module).type not in ("cuda", "cpu")
        or torch.version.hip is not None
    ):
        return False
    return not (method.use_flashinfer_trtllm_moe or getattr(method, "w13_swiglu_interleaved", False))


def _check(model: torch.nn.Module) -> None:
    """Raises LayoutError for servers whose weights are in places that an update of parameters does not reach."""
    if hasattr(model, "post_load_weights"):
        raise LayoutError(
            "this model keeps weights derived from others after loading (MLA, for one), which no update of parameters "
            "reaches: use a plain update of weights"
        )
    if any(isinstance(module, BaseLayerWithLoRA) for module in model.modules()):
        raise LayoutError("the server serves adapters (LoRA), which hide the weights below: start it without them")
    if QuantizedRLModelLoader.is_reload_scenario(model):
        raise LayoutError("the load format `flash_rl` quantises what is loaded: start the server with another one")
    if get_spec().speculative_algorithm is not None:
        raise LayoutError("a draft model would stay behind: start the server without speculative decoding")
    if get_exec().moe.enable_eplb:
        raise LayoutError("experts move between ranks (EPLB): start the server without `--enable-eplb`")


def _ranks() -> Ranks:
    parallel = get_parallel()
    if parallel.pp_size > 1:
        raise LayoutError("pipeline parallelism is not followed: start the server with tensor parallelism alone")
    group = parallel.tp_group

    def gather(tensor: torch.Tensor) -> list[torch.Tensor]:
        found = [torch.empty_like(tensor) for _ in range(group.world_size)]
        torch.distributed.all_gather(found, tensor.contiguous(), group=group.cpu_group)
        return found

    return Ranks(group.rank_in_group, group.world_size, gather) if group.world_size > 1 else Ranks()


def _before_begin(updater: Any) -> None:
    if LOADER not in (updater.custom_weight_loaders or ()):
        return
    try:
        RANK.begin(updater.get_model())
    except FAILURES as error:
        RANK.steady = None
        _log.warning("the packing of modules could not be remembered: %s", error)


def _answering(original: Callable[..., Any], updater: Any, named_tensors: Any, load_format: str | None = None) -> Any:
    """SGLang's own call, with an answer for what went wrong; updates of others are left alone."""
    if load_format != LOADER:
        return original(updater, named_tensors=named_tensors, load_format=load_format)
    if LOADER not in (updater.custom_weight_loaders or ()):
        return False, f"the server knows no such loader: start it with --custom-weight-loader {LOADER}"
    RANK.model_config, RANK.failure = updater.model_config, None
    try:
        answer = original(updater, named_tensors=named_tensors, load_format=load_format)
    except FAILURES as error:
        return False, str(error) or type(error).__name__
    finally:
        RANK.model_config = None
    return answer if RANK.failure is None else (False, RANK.failure)


def _after_end(result: None, updater: Any, **_: Any) -> None:
    if LOADER not in (updater.custom_weight_loaders or ()):
        return
    try:
        RANK.end(updater.get_model())
    except FAILURES:
        _log.exception("repacked modules are not what they were: update again")


def _state(model: torch.nn.Module, path: str) -> dict[str, torch.Tensor]:
    found = model.get_submodule(path).state_dict(keep_vars=True)
    return {name: one for name, one in found.items() if isinstance(one, torch.Tensor)}


def _device(model: torch.nn.Module) -> torch.device:
    return next(model.parameters()).device
