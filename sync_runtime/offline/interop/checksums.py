"""Checksums by the names that other tools give them. They find faults and wrong bases; they stop no forger."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Mapping

from sync_runtime.errors import DigestError, SettingsError, UnknownFormatError
from sync_runtime.offline.interop.items import U8


def xxh3_128(data: U8) -> bytes:
    """Sixteen bytes, seed 0; raises SettingsError where the package is missing."""
    try:
        import xxhash  # noqa: PLC0415  # only some formats need it: the others must work without
    except ModuleNotFoundError as error:
        raise _missing("xxhash") from error
    return xxhash.xxh3_128_digest(data.data)


def blake3(data: U8) -> bytes:
    """Thirty-two bytes; raises SettingsError where the package is missing."""
    try:
        from blake3 import blake3 as hasher  # noqa: PLC0415  # only some formats need it: the others must work without
    except ModuleNotFoundError as error:
        raise _missing("blake3") from error
    return bytes(hasher(data.data).digest())


def _missing(package: str) -> SettingsError:
    return SettingsError(f"this format needs the package {package}: install the extra `interop` of syncgroup")


BY_NAME: Mapping[str, Callable[[U8], str]] = {
    "adler32": lambda data: f"{zlib.adler32(data.data):08x}",
    "blake3": lambda data: blake3(data).hex(),
    "sha256": lambda data: hashlib.sha256(data.data).hexdigest(),
    "xxh3-128": lambda data: xxh3_128(data).hex(),
}


def known(name: str, among: tuple[str, ...], what: str) -> str:
    """The name again; refuses a checksum that the format does not have."""
    if name not in among:
        raise UnknownFormatError(f"{what} uses the checksum {name!r}; known are {', '.join(among)}")
    return name


def verify(algorithm: str, data: U8, promised: str, name: str) -> None:
    """Refuses a tensor that is not the promised one."""
    if BY_NAME[algorithm](data) != promised:
        raise DigestError(
            f"{name!r} does not become what the delta's {algorithm} promises: "
            "the base is another one, or the bytes are damaged"
        )
