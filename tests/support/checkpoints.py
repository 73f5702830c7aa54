"""safetensors files for tests, written by hand: the reader under test must not be the only judge of the format."""

from __future__ import annotations

import json
from pathlib import Path

from sync_runtime.tensors.bits import State


def save_file(path: Path, state: State, padding: int = 0) -> Path:
    """One file; `padding` shifts the tensors off their natural alignment."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, bits in state.items():
        raw = bits.matrix.tobytes()
        header[name] = {
            "dtype": bits.dtype.name,
            "shape": list(bits.shape),
            "data_offsets": [len(data), len(data) + len(raw)],
        }
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8 + padding)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def save_folder(folder: Path, state: State, shards: int = 2) -> Path:
    """Shards with an index."""
    folder.mkdir()
    names = sorted(state)
    weight_map = {}
    for number in range(shards):
        file = f"model-{number + 1:05d}-of-{shards:05d}.safetensors"
        mine = names[number::shards]
        save_file(folder / file, {name: state[name] for name in mine})
        weight_map.update(dict.fromkeys(mine, file))
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return folder
