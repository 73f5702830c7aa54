"""End-to-end encryption of what lies in a store: AES-256-GCM under keys derived per place (STORE.md, section 6).

Draws nonces; knows keys of the store as text and nothing else of it.
"""

from __future__ import annotations

import hmac
import re
import secrets
from functools import lru_cache
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from sync_runtime.errors import SettingsError
from sync_runtime.transport.object_store.errors import StoreDamagedError
from sync_runtime.transport.object_store.names import LATEST, PLACES

MAGIC: Final = b"SGE1"
GROUP_KEY_NAME: Final = "SYNCGROUP_STORE_KEY"
"""The group key among the files of the store's Secret."""
KEY_BYTES: Final = 32
OVERHEAD_BYTES: Final = 32
"""Magic, nonce and tag."""
_NONCE_BYTES: Final = 12
_DATA_INFO: Final = b"syncgroup store data 1"
_NAMES_INFO: Final = b"syncgroup store names 1"
_ASSOCIATED: Final = "syncgroup store 1"
_KEY: Final = re.compile(r"[0-9a-fA-F]{64}")


def parse_group_key(text: str) -> bytes:
    """The group key as a Secret holds it; raises SettingsError."""
    if not _KEY.fullmatch(text.strip()):
        raise SettingsError("the store's group key must be 64 hexadecimal digits: `openssl rand -hex 32` makes one")
    return bytes.fromhex(text.strip())


class Seal:
    """Closes and opens what one group puts. Without a key everything passes as it is. Thread-safe."""

    def __init__(self, group_uid: str, group_key: bytes | None = None) -> None:
        if group_key is not None and len(group_key) != KEY_BYTES:
            raise SettingsError(f"the store's group key has {KEY_BYTES} bytes")
        self._group_uid = group_uid
        self._group_key = group_key
        self._names_key = None if group_key is None else _derived(group_key, b"", _NAMES_INFO)

    @property
    def overhead_bytes(self) -> int:
        """How much longer sealed bytes are."""
        return 0 if self._group_key is None else OVERHEAD_BYTES

    def bucket_name(self, sha256: bytes) -> str:
        """What a bucket is called: its hash, which the store must not learn where contents are secret."""
        if self._names_key is None:
            return sha256.hex()
        return hmac.digest(self._names_key, sha256, "sha256").hex()

    def close(self, path: str, data: bytes | memoryview) -> bytes | memoryview:
        """What is put under a key. Called once for every put: a repetition sends the same bytes."""
        if self._group_key is None:
            return data
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return MAGIC + nonce + self._cipher(path).encrypt(nonce, data, self._associated(path))

    def open(self, path: str, data: bytes | memoryview) -> bytes | memoryview:
        """What was put under a key; raises StoreDamagedError."""
        is_sealed = bytes(data[: len(MAGIC)]) == MAGIC
        if self._group_key is None:
            if is_sealed:
                raise StoreDamagedError(f"{path} is sealed: give this member the group key of the store")
            return data
        if not is_sealed or len(data) < OVERHEAD_BYTES:
            raise StoreDamagedError(f"{path} is not sealed, and this group takes nothing that is not")
        nonce = bytes(data[len(MAGIC) : len(MAGIC) + _NONCE_BYTES])
        try:
            return self._cipher(path).decrypt(nonce, data[len(MAGIC) + _NONCE_BYTES :], self._associated(path))
        except InvalidTag as error:
            raise StoreDamagedError(f"{path} was altered, or sealed with another key or for another key") from error

    def _cipher(self, path: str) -> AESGCM:
        if self._group_key is None:
            raise StoreDamagedError("there is no group key")
        salt = path[len(PLACES) :].partition("/")[0] if path.startswith(PLACES) else LATEST
        return _cipher_of(self._group_key, salt)

    def _associated(self, path: str) -> bytes:
        return "\0".join((_ASSOCIATED, self._group_uid, path)).encode()


@lru_cache(maxsize=64)
def _cipher_of(group_key: bytes, salt: str) -> AESGCM:
    return AESGCM(_derived(group_key, salt.encode(), _DATA_INFO))


def _derived(group_key: bytes, salt: bytes, info: bytes) -> bytes:
    return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=salt, info=info).derive(group_key)
