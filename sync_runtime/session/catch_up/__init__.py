"""Catching up: what a member that is behind needs (`choice`, pure) and making it (`maker`)."""

from sync_runtime.session.catch_up.choice import (
    Anchor,
    Choice,
    Make,
    Nothing,
    Path,
    Push,
    SpoolIndex,
    Step,
    Unknown,
    WayBack,
    choose,
    find_path,
    key_between,
)
from sync_runtime.session.catch_up.maker import Maker, MakerSettings, Watcher, index_of

__all__ = [
    "Anchor",
    "Choice",
    "Make",
    "Maker",
    "MakerSettings",
    "Nothing",
    "Path",
    "Push",
    "SpoolIndex",
    "Step",
    "Unknown",
    "Watcher",
    "WayBack",
    "choose",
    "find_path",
    "index_of",
    "key_between",
]
