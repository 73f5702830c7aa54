"""Programs for working on SyncGroup: building tools from source, the dev cluster, the link emulator, checks.

Nothing here is part of the installed product, and product code must not import it.
"""
