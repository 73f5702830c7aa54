"""Delta folders as SkyRL publishes them: `manifest.json` over safetensors files of XOR bytes under zstd."""

from __future__ import annotations

import json
from pathlib import Path

from sync_runtime.errors import FormatError, LayoutError
from sync_runtime.offline.durable import beside, durable_folder, read_small
from sync_runtime.offline.interop import checksums
from sync_runtime.offline.interop.container import Container, Part, only, open_container, write_container
from sync_runtime.offline.interop.documents import MAX_DOCUMENT_BYTES, count, field, objects, parse_object, sizes
from sync_runtime.offline.interop.items import changed_positions, raw_bytes
from sync_runtime.offline.interop.model import Origin
from sync_runtime.offline.interop.packed import Packed, PackedTensors, pack_xor, packed_bytes
from sync_runtime.offline.interop.target import Export, Written
from sync_runtime.tensors.bits import BitTensor

MANIFEST = "manifest.json"
_ALGORITHMS = ("xxh3-128", "sha256")
_PAYLOAD = "delta-rank00000-file000000.safetensors"
_TORCH_NAMES = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu", "U16": "uint16", "I16": "int16", "F16": "float16", "BF16": "bfloat16",
    "U32": "uint32", "I32": "int32", "F32": "float32", "U64": "uint64", "I64": "int64", "F64": "float64",
    "C64": "complex64",
}  # fmt: skip


class SkyrlDelta(PackedTensors):
    """Beyond the bytes: what the manifest says of each tensor must be what the base has."""

    def __init__(self, origin: Origin, changes: dict[str, Packed], records: dict[str, dict[str, object]]) -> None:
        super().__init__(origin, changes)
        self._records = records

    def patched(self, name: str, old: BitTensor) -> BitTensor:
        """The base with the change applied, if it is the tensor that the manifest describes."""
        record, where = self._records[name], f"the record of {name!r}"
        said = (field(record, "dtype", str, where), sizes(record, "shape", where))
        if said != (_TORCH_NAMES[old.dtype.name], old.shape):
            have = f"{_TORCH_NAMES[old.dtype.name]}{list(old.shape)}"
            raise LayoutError(f"{name!r} is {have} in the base and {said[0]}{list(said[1])} in the delta")
        if count(record, "uncompressed_num_bytes", where) != raw_bytes(old).size:
            raise FormatError(f"{where} gives another size than its shape")
        return super().patched(name, old)


def read(folder: Path) -> SkyrlDelta:
    """Opens a delta folder."""
    what = str(folder / MANIFEST)
    manifest = parse_object(read_small(folder / MANIFEST, MAX_DOCUMENT_BYTES), what)
    files = field(manifest, "payload_files", list, what)
    containers = {file: open_container(beside(folder, file, what)) for file in files}
    if len(containers) != len(files):
        raise FormatError(f"{what} names a payload file twice")
    changes: dict[str, Packed] = {}
    records: dict[str, dict[str, object]] = {}
    keys: dict[str, list[str]] = {file: [] for file in files}
    for record in objects(manifest, "tensors", what):
        name = field(record, "name", str, what)
        if name in records:
            raise FormatError(f"{what} describes {name!r} twice")
        file, key = field(record, "payload_file", str, what), field(record, "payload_key", str, what)
        if file not in containers:
            raise FormatError(f"{what} places {name!r} in {file!r}, which it does not list")
        records[name] = record
        keys[file].append(key)
        changes[name] = _packed(record, containers[file], name, what)
    for file, expected in keys.items():
        only(expected, containers[file], str(folder / file))
    seqs = (count(manifest, "base_version", what), count(manifest, "version", what))
    label = f"version {seqs[1]} after {seqs[0]}"
    return SkyrlDelta(Origin("skyrl", label, "the checksum of every changed tensor", seqs), changes, records)


def _packed(record: dict[str, object], container: Container, name: str, what: str) -> Packed:
    stored = container.tensors.get(field(record, "payload_key", str, what))
    if stored is None:
        raise FormatError(f"{what} places {name!r} where nothing is")
    data = packed_bytes(stored, name)
    if count(record, "compressed_num_bytes", what) != len(data):
        raise FormatError(f"{what} gives {name!r} another number of bytes than its file holds")
    if "checksum" not in record:  # the first releases had one algorithm, and its name as the key
        return Packed("xor", data, "sha256", field(record, "sha256", str, what))
    algorithm = checksums.known(str(record.get("checksum_algorithm", "xxh3-128")), _ALGORITHMS, what)
    return Packed("xor", data, algorithm, field(record, "checksum", str, what))


def write(export: Export) -> Written:
    """Writes a delta folder."""
    parts, records, changed = {}, list[dict[str, object]](), 0
    unpacked_bytes = 0
    for pair in export.pairs():
        packed = pack_xor(pair.old, pair.new, "xxh3-128")
        if packed is None:
            continue
        changed += changed_positions(pair.old, pair.new).size
        unpacked_bytes += raw_bytes(pair.new).size
        parts[pair.name] = Part("U8", (len(packed[0]),), packed[0])
        records.append(
            {
                "name": pair.name,
                "dtype": _TORCH_NAMES[pair.new.dtype.name],
                "shape": list(pair.new.shape),
                "uncompressed_num_bytes": raw_bytes(pair.new).size,
                "compressed_num_bytes": len(packed[0]),
                "payload_file": _PAYLOAD,
                "payload_key": pair.name,
                "checksum": packed[1],
                "checksum_algorithm": "xxh3-128",
            }
        )
    manifest = {
        "version": export.number("version", export.target_seq),
        "base_version": export.number("base_version", export.base_seq),
        "tensors": records,
        "total_uncompressed_num_bytes": unpacked_bytes,
        "total_compressed_num_bytes": sum(len(part.data) for part in parts.values()),
        "payload_files": [_PAYLOAD] if parts else [],
    }
    with durable_folder(export.output) as folder:
        if parts:
            with (folder / _PAYLOAD).open("wb") as file:
                write_container(file, parts, {})
        (folder / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")
    return Written(changed, len(parts))
