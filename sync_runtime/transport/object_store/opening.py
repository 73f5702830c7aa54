"""From what a plan and a Secret say to a store: which way leads to an address, and the key that seals it.

The library behind remote stores is imported only where one is used.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from sync_runtime.errors import SettingsError
from sync_runtime.transport.object_store.errors import StoreDeniedError
from sync_runtime.transport.object_store.folder import FolderStore
from sync_runtime.transport.object_store.ports import Objects
from sync_runtime.transport.object_store.seal import GROUP_KEY_NAME, Seal, parse_group_key


def open_store(url: str, prefix: str, credentials: Path | None = None, keys: str = "") -> Objects:
    """The store at an address of the contract (`objectStore.url`), below a prefix; raises SettingsError.

    `keys`: what the names of its credentials begin with, where several stores share their folder.
    """
    parts = urlsplit(url)
    if parts.scheme == "file":
        if parts.netloc:
            raise SettingsError(f"{url} names a host: a folder is file:///with/three/strokes")
        return FolderStore(Path(unquote(parts.path)) / prefix)
    from sync_runtime.transport.object_store.remote import RemoteStore  # noqa: PLC0415 -- see above

    return RemoteStore(url, prefix, credentials, keys=keys)


def open_seal(group_uid: str, credentials: Path | None, keys: str = "") -> Seal:
    """The seal that the Secret asks for: none where it has no group key."""
    path = None if credentials is None else credentials / f"{keys}{GROUP_KEY_NAME}"
    if path is None or not path.exists():
        return Seal(group_uid)
    try:
        return Seal(group_uid, parse_group_key(path.read_text(encoding="ascii")))
    except (OSError, UnicodeDecodeError) as error:
        raise StoreDeniedError(f"the store's group key in {path} cannot be read") from error
