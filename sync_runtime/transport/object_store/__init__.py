"""Objects through a store that nobody has to dial: what lies in it, in which order it is put, read and removed.

STORE.md is the page. Decisions (`pointer`, `lines`, `route`, `fences`) are pure; `publisher` and `reader` act on them
through `ports`, and `folder` and `remote` are the two ways to a store. Moves buckets and never looks into them.
"""
