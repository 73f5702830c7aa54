"""Version folders as slime, miles and ModelExpress publish them: a Hugging Face index over compressed changes.

    model.safetensors.index.json   metadata: version, base_version, delta_encoding, compression_format, checksum_format
    model-00000-of-00001.safetensors   per changed tensor its compressed bytes; metadata: name -> checksum of the result

`base_version` is a name among the writer's own versions, not an identity: the base checkpoint must be known.
"""

from __future__ import annotations

import json
from pathlib import Path

from sync_runtime.errors import FormatError, UnknownFormatError
from sync_runtime.offline.durable import beside, durable_folder, read_small
from sync_runtime.offline.interop import checksums
from sync_runtime.offline.interop.container import Part, only, open_container, write_container
from sync_runtime.offline.interop.documents import MAX_DOCUMENT_BYTES, field, parse_object
from sync_runtime.offline.interop.items import changed_positions
from sync_runtime.offline.interop.model import Origin
from sync_runtime.offline.interop.packed import ENCODINGS, Packed, PackedTensors, pack_xor, packed_bytes
from sync_runtime.offline.interop.target import Export, Written

INDEX = "model.safetensors.index.json"
_ALGORITHMS = ("xxh3-128", "blake3", "adler32")
_SHARD = "model-00000-of-00001.safetensors"


def read(folder: Path) -> PackedTensors:
    """Opens a version folder."""
    what = str(folder / INDEX)
    index = parse_object(read_small(folder / INDEX, MAX_DOCUMENT_BYTES), what)
    metadata, weight_map = field(index, "metadata", dict, what), field(index, "weight_map", dict, what)
    encoding, packing = metadata.get("delta_encoding"), metadata.get("compression_format")
    if encoding is None:
        raise FormatError(f"{what} is of an ordinary checkpoint: read it with --format dense-safetensors")
    if encoding not in ENCODINGS or packing != "zstd":
        raise UnknownFormatError(f"{what} is {encoding!r} under {packing!r}; known are xor and overwrite under zstd")
    algorithm = checksums.known(str(metadata.get("checksum_format")), _ALGORITHMS, what)
    changes: dict[str, Packed] = {}
    for file, names in _shards(folder, weight_map, what).items():
        changes |= _shard(file, names, str(encoding), algorithm)
    version, before = metadata.get("version"), metadata.get("base_version")
    label = f"version {version} after {before}" if _is_plain(version) and _is_plain(before) else ""
    checked = f"the {algorithm} of every changed tensor"
    return PackedTensors(Origin(f"hf-index {encoding}", label, checked), changes)


def write(export: Export) -> Written:
    """Writes a version folder. `slime` is what slime and miles read; `modelexpress` differs in index and checksum."""
    theirs = export.variant == "modelexpress"
    algorithm = "adler32" if theirs else "xxh3-128"
    parts, sums, changed = {}, {}, 0
    for pair in export.pairs():
        packed = pack_xor(pair.old, pair.new, algorithm)
        if packed is not None:
            parts[pair.name] = Part("U8", (len(packed[0]),), packed[0])
            sums[pair.name] = packed[1]
            changed += changed_positions(pair.old, pair.new).size
    version = export.number("version", export.target_seq)
    before = export.meta.get("base_version", str(export.base_seq) if theirs else f"{export.base_seq:06d}")
    index = {
        "metadata": {
            "version": version if theirs else f"{version:06d}",
            "base_version": before,
            "delta_encoding": "xor",
            "compression_format": "zstd",
            "checksum_format": algorithm,
        },
        "weight_map": dict.fromkeys(parts, _SHARD),
    }
    with durable_folder(export.output) as folder:
        if parts:
            with (folder / _SHARD).open("wb") as file:
                write_container(file, parts, sums)
        (folder / INDEX).write_bytes(json.dumps(index, sort_keys=theirs).encode())
    return Written(changed, len(parts))


def _shards(folder: Path, weight_map: dict[str, object], what: str) -> dict[Path, list[str]]:
    found: dict[Path, list[str]] = {}
    for name, file in weight_map.items():
        found.setdefault(beside(folder, file, what), []).append(name)
    return found


def _shard(path: Path, names: list[str], encoding: str, algorithm: str) -> dict[str, Packed]:
    container = open_container(path)
    only(names, container, str(path))
    missing = [name for name in names if name not in container.metadata]
    if missing:
        raise FormatError(f"{path} has no checksum for {missing[0]!r}: a change under XOR is not taken without one")
    return {
        name: Packed(encoding, packed_bytes(container.tensors[name], name), algorithm, container.metadata[name])
        for name in names
    }


def _is_plain(value: object) -> bool:
    return isinstance(value, int | str) and len(str(value)) <= 64 and str(value).isprintable()
