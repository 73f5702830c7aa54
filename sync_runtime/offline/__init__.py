"""Deltas of whole states on one machine's CPU: the small Python surface, and `.sgd` files.

    from sync_runtime.offline import diff, apply, merge, invert, digest, Snapshot

    delta = diff(old_state, new_state)          # states are mappings name -> tensor (torch on the CPU, or numpy)
    delta.save("step.sgd")
    apply(state, load("step.sgd"))              # in place; all or nothing
    merge(first, second), invert(delta)         # neither needs the weights, unless an input is coded tight
    digest(state)                               # 128 bits, independent of order and sharding

Here delta, codec and manifest meet. Needs numpy and numba; imports no torch, makes no connection.
"""

from sync_runtime.offline.deltafile import Delta, load
from sync_runtime.offline.snapshot import Snapshot
from sync_runtime.offline.surface import apply, diff, digest, invert, layout_of, merge, transcode

__all__ = ["Delta", "Snapshot", "apply", "diff", "digest", "invert", "layout_of", "load", "merge", "transcode"]
