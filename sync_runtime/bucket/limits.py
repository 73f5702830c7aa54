"""How large buckets and objects may be (PROTOCOL.md, section 9). Numbers only; this package obeys them."""

from __future__ import annotations

MIN_BUCKET_BYTES = 64 << 10
"""But for the last eight buckets of an object; ours cut one smaller one at most."""
MAX_BUCKET_BYTES = 16 << 20
MAX_BUCKETS = 1 << 20
MAX_OBJECT_BYTES = MAX_BUCKETS * MAX_BUCKET_BYTES
MAX_PARTIAL_OBJECTS = 8
MAX_LAYOUTS = 16
"""Layouts that no object uses are forgotten beyond this."""
MAX_SIGNERS = 64
MAX_SIGNER_BYTES = 64 << 10
MAX_LINEAGES = 256
