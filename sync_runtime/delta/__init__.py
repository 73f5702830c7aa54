"""The delta itself: found between two states, applied to one, checked by digests. Knows nothing of bytes on the wire.

`naive` and `kernels` need torch, `cpu` needs numba; `digest`, `apply` and `snapshot` need numpy alone.
"""
