"""vLLM (0.32 or newer): a weight-transfer backend called `syncgroup`, found by vLLM through its entry point.

    vllm serve MODEL --weight-transfer-config '{"backend": "syncgroup"}'

Versions arrive in a thread while the engine generates; `/update_weights` switches to the newest in the pause. Every
rank's worker holds one engine of this class, and all ranks talk to the pod's one sidecar. Elements are changed in place
where the model's own loader merely copies (plain, fused and cut weights); modules that vLLM repacks or quantises are
loaded again, through vLLM's own reloading. Knows vLLM, and nothing of deltas.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from vllm.config import set_current_vllm_config
from vllm.distributed import get_world_group
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
from vllm.model_executor.layers.attention import MLAAttention
from vllm.model_executor.model_loader.reload.layerwise import (
    finalize_layerwise_reload,
    get_layerwise_info,
    initialize_layerwise_reload,
)

from sync_runtime.errors import LayoutError, LocalError
from sync_runtime.library.cuts import Cuts
from sync_runtime.library.engines.contents import content_of
from sync_runtime.library.engines.following import Follower, Opening, agreed, map_engine
from sync_runtime.library.engines.mapped import MappedEngine, Ranks
from sync_runtime.library.version import Version
from sync_runtime.local.messages import Coder

BACKEND = "syncgroup"
_COPYING = {"UnquantizedLinearMethod", "UnquantizedEmbeddingMethod"}
"""Methods that use weights as their loader left them."""
_COPYING_EXPERTS = {"TRITON", "BATCHED_TRITON"}
"""Kernels for unquantised experts that do so; all others shuffle, swap or pack them."""


@dataclass
class SyncGroupInitInfo(WeightTransferInitInfo):  # type: ignore[misc] # vLLM is not in the checker's environment
    """`{"init_info": {...}}` of `/init_weight_transfer_engine`; everything has a default."""

    socket: str | None = None
    """The sidecar's; by default what `SYNCGROUP_SOCKET` says, else its place in every pod."""
    layout: str | None = None
    """The trainer's layout document; by default the tensors of the checkpoint that the engine was loaded from."""
    cuts: Cuts | None = None
    """Where the trainer cuts tensors: what `Publisher.cuts` says, or into how many parts; by default one per rank."""
    coder: Coder | None = None
    timeout_s: float = 60.0
    patience_s: float = 5.0


@dataclass
class SyncGroupUpdateInfo(WeightTransferUpdateInfo):  # type: ignore[misc]
    """`{"update_info": {...}}` of `/update_weights`."""

    seq: int | None = None
    """The oldest version that will do; by default whatever is staged, also nothing."""
    timeout_s: float = 0.0
    """How long to wait for it; requests stand still meanwhile."""
    scrub: bool = False
    """Whether all weights are compared with the version, still in the pause."""


def register() -> None:
    """The entry point of `vllm.general_plugins`: vLLM calls it in every process, some of them twice."""
    if BACKEND not in WeightTransferEngineFactory._registry:
        WeightTransferEngineFactory.register_engine(BACKEND, __name__, "SyncGroupEngine")


class SyncGroupEngine(WeightTransferEngine[SyncGroupInitInfo, SyncGroupUpdateInfo]):  # type: ignore[misc]
    """One rank's end. A raise becomes an answer of status 500, and the server goes on with the weights that it has."""

    init_info_cls = SyncGroupInitInfo
    update_info_cls = SyncGroupUpdateInfo
    supports_draft_weight_update = False

    _follower: Follower | None = None

    def init_transfer_engine(self, init_info: SyncGroupInitInfo) -> None:
        """Follows the model's loader, opens the sidecar, and begins to stage in the background."""
        self.shutdown()
        ranks = _ranks(self.parallel_config)
        with set_current_vllm_config(self.vllm_config):  # vLLM's worker does not do it for this call
            engine = mapped(self.model, self.model_config, init_info, ranks)
        opening = Opening(init_info.socket, init_info.coder, init_info.timeout_s, init_info.patience_s)
        self._follower = Follower(engine, opening, ranks)

    @property
    def version(self) -> Version | None:
        """What the weights are; None: no version, or half of one."""
        return None if self._follower is None else self._follower.version

    def start_weight_update(self) -> None:
        """Nothing is prepared in the pause; an engine that was not opened is told so before anything happens."""
        self._opened()

    def receive_weights(self, update_info: SyncGroupUpdateInfo) -> None:
        """Switches to the newest staged version: all of it, in all ranks, or nothing."""
        self._opened().update(update_info.seq, update_info.timeout_s, scrub=update_info.scrub)

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """As the base does, which asks for an accelerator even where the model is on a CPU."""
        self.receive_weights(self.parse_update_info(update_info))
        if torch.accelerator.is_available():
            torch.accelerator.synchronize()

    def finish_weight_update(self) -> None:
        """All is done already: a version that is live is whole."""

    def shutdown(self) -> None:
        """Hangs up; the weights stay as they are."""
        follower, self._follower = self._follower, None
        if follower is not None:
            follower.close()

    def _opened(self) -> Follower:
        if self._follower is None:
            raise LocalError("the weight transfer was not opened: call `/init_weight_transfer_engine` first")
        return self._follower


def mapped(model: torch.nn.Module, model_config: Any, info: SyncGroupInitInfo, ranks: Ranks) -> MappedEngine:
    """A rank's model under canonical names; raises LayoutError for one that cannot be followed."""
    if any(isinstance(module, MLAAttention) for module in model.modules()):
        raise LayoutError(
            "the attention of this model keeps weights derived from `kv_b_proj` (MLA), which no update of parameters "
            "reaches: use a backend that sends whole tensors"
        )
    content, read = agreed(ranks, lambda: content_of(
        Path(model_config.model), model_config.dtype, layout=info.layout, cuts=info.cuts, ranks=ranks.count,
        is_tied=getattr(model_config.hf_config, "tie_word_embeddings", False),
    ))  # fmt: skip
    repacked = list(repacked_modules(model))

    def loading() -> AbstractContextManager[None]:
        return _in_loading_form([model.get_submodule(path) for path in repacked], model_config)

    def reload(modules: Sequence[str], tensors: Iterator[tuple[str, torch.Tensor]]) -> None:
        with _in_loading_form([model.get_submodule(path) for path in modules], model_config):
            model.load_weights(tensors)  # type: ignore[operator]

    return map_engine(model, content, read, ranks, repacked=repacked, loading=loading, reload=reload)


def repacked_modules(model: torch.nn.Module) -> Iterator[str]:
    """Modules whose memory is not, or may not be, as their loader filled it; with all that is inside them."""
    found: list[str] = []
    for path, module in model.named_modules():
        if any(path.startswith(f"{outer}.") for outer in found) or not _is_as_loaded(module):
            found.append(path)
            yield path


def _is_as_loaded(module: torch.nn.Module) -> bool:
    if not list(module.parameters(recurse=False)):
        return True
    method = getattr(module, "quant_method", None)
    if method is not None and type(method).__name__ not in _COPYING:
        backend = getattr(getattr(method, "unquantized_backend", None), "name", None)
        if type(method).__name__ != "UnquantizedFusedMoEMethod" or backend not in _COPYING_EXPERTS:
            return False
    if getattr(getattr(module, "cpu_linear", None), "__closure__", None):  # a CPU kernel that holds a packed copy
        return False
    loaded, _ = get_layerwise_info(module).restore_metadata
    return all(_alike(one, loaded[name]) for name, one in module.named_parameters(recurse=False) if name in loaded)


def _alike(live: torch.Tensor, loaded: torch.Tensor) -> bool:
    return (live.shape, live.stride(), live.dtype) == (loaded.shape, loaded.stride(), loaded.dtype)


@contextmanager
def _in_loading_form(modules: Sequence[torch.nn.Module], model_config: Any) -> Iterator[None]:
    """Modules as their loader wants them; afterwards they have what was loaded, or what they had where nothing was."""
    with ExitStack() as stack:
        for module in modules:
            initialize_layerwise_reload(module)
            stack.callback(finalize_layerwise_reload, module, model_config)
        yield


def _ranks(parallel: Any) -> Ranks:
    if parallel.data_parallel_size > 1:
        raise LayoutError(
            "every replica of data parallelism is a member of its own: start them as servers of their own"
        )
    group = get_world_group()

    def gather(tensor: torch.Tensor) -> list[torch.Tensor]:
        found = [torch.empty_like(tensor) for _ in range(group.world_size)]
        torch.distributed.all_gather(found, tensor.contiguous(), group=group.cpu_group)
        return found

    return Ranks(group.rank_in_group, group.world_size, gather) if group.world_size > 1 else Ranks()
