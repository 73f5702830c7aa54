"""Deltas and anchors as bytes (FORMAT.md). `frame`, `limits`, `rules` and `tables` need numpy alone; `cpu` adds numba,
`gpu` torch and triton. Knows nothing of how differences are found or applied, nor of files and networks.
"""
