"""Catching up: which links lead on (`choice`), making objects of them (`maker`), who stands still (`stalls`)."""

from sync_runtime.session.catch_up.choice import Path, SpoolIndex, Step, find_path, key_between
from sync_runtime.session.catch_up.maker import Maker, MakerSettings, Watcher, index_of

__all__ = ["Maker", "MakerSettings", "Path", "SpoolIndex", "Step", "Watcher", "find_path", "index_of", "key_between"]
