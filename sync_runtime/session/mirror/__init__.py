"""The sidecar's copy of the weights, where the library has no GPU to code on: the state, and what is staged over it."""

from sync_runtime.session.mirror.stages import Layer, Stages
from sync_runtime.session.mirror.state import Mirror, adopt, sweep

__all__ = ["Layer", "Mirror", "Stages", "adopt", "sweep"]
