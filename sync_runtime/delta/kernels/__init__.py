"""Extraction, digest and scatter as Triton kernels, with the plain reference of each in `sync_runtime.delta.naive`.

Knows nothing of bytes on the wire: what it finds is a change list, what it applies is one.
"""
