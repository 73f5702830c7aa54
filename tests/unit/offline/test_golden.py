"""Golden files: the bytes of format version 1, pinned. They change only together with the format's version.

Deltas are whole `.sgd` files. An anchor is an object with its layout and its manifest's envelope in files beside it.
Written once by `python -m tests.unit.offline.test_golden`; a reader in another language can be tried on them too.
"""

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sync_runtime.bucket.manifest import Version, open_envelope, pack_envelope, parse_manifest
from sync_runtime.codec.frame import parse_object
from sync_runtime.codec.limits import MODE_NAMES
from sync_runtime.offline import Delta, apply, diff, digest, layout_of, load
from sync_runtime.offline.anchors import describe_anchor, read_anchor, write_anchor, write_block
from sync_runtime.tensors.bits import BitTensor, bind
from sync_runtime.tensors.blocks import BlockMap
from sync_runtime.tensors.layout import parse_layout
from tests.support.states import copied, next_state, noise, same_bits, small_state, stepped, tensor, weights

GOLDEN = Path(__file__).with_name("golden")
CODECS = ("fast", "tight", "auto")


def pair() -> tuple[dict[str, BitTensor], dict[str, BitTensor]]:
    """Every width, small and large tensors, one block that is rewritten whole."""
    before = small_state(77)
    after = next_state(before, 5, 400)
    after["router.bias"] = stepped(before["router.bias"], 8, 1000, 1000)
    return before, after


def golden(codec: str) -> Delta:
    before, after = pair()
    layout = layout_of(before)
    return diff(before, after, codec=codec, layout=layout, seqs=(6, 7), lineage="0123456789abcdef" * 2, label="golden")


@pytest.mark.parametrize("codec", CODECS)
def test_the_same_input_gives_the_pinned_bytes(codec: str) -> None:
    assert golden(codec).to_bytes() == (GOLDEN / f"{codec}.sgd").read_bytes()


@pytest.mark.parametrize("codec", CODECS)
def test_a_pinned_file_still_leads_to_its_state(codec: str) -> None:
    before, after = pair()
    state = copied(before)
    apply(state, load(GOLDEN / f"{codec}.sgd"))
    assert same_bits(state, after)


def test_the_pinned_files_hold_every_mode_of_a_delta() -> None:
    modes = {
        MODE_NAMES[record.mode] for codec in CODECS for record in parse_object(load(GOLDEN / f"{codec}.sgd").object)[2]
    }
    assert modes == {"fast", "tight", "dense"}


def anchored_state() -> dict[str, BitTensor]:
    """Packed blocks in every width and of two elements per item; raw ones where there is no exponent, or only noise."""
    near_one = noise(3000, 6) % np.uint64(1 << 12)
    return {
        "layers.0.mlp.weight": weights((260, 256), 21),
        "half": tensor("F16", (30, 20), near_one[:600] + np.uint64(0x3400)),
        "codes": tensor("F8_E4M3", (700,), near_one[:700] % np.uint64(29)),
        "noise": tensor("F8_E5M2", (50,), noise(50, 22)),
        "router.bias": tensor("F32", (400,), (near_one[:400] << np.uint64(9)) + np.uint64(0x3F000000)),
        "turns": tensor("C64", (200,), (near_one[:400] << np.uint64(10)) + np.uint64(0x3E800000)),
        "counts": tensor("I64", (3,), noise(6, 23)),
        "flags": tensor("BOOL", (5,), noise(5, 24) % np.uint64(2)),
        "empty": tensor("BF16", (0, 4), np.zeros(0, np.uint16)),
    }


def golden_anchor() -> dict[str, bytes]:
    """The files of an anchor by their suffix."""
    state = anchored_state()
    blocks, sink = BlockMap(layout_of(state)), io.BytesIO()
    totals = write_anchor(sink, blocks, bind(blocks.layout, state), seq=2**40 + 5)
    manifest = describe_anchor(blocks, totals, Version(2**40 + 5, digest(state)), "fedcba9876543210" * 2)
    return {"object": sink.getvalue(), "layout": blocks.layout.document, "manifest": pack_envelope(manifest.to_json())}


def pinned_anchor() -> dict[str, bytes]:
    return {suffix: (GOLDEN / f"anchor.{suffix}").read_bytes() for suffix in ("object", "layout", "manifest")}


def test_the_same_weights_give_the_pinned_anchor() -> None:
    assert golden_anchor() == pinned_anchor()


def test_a_pinned_anchor_still_holds_its_weights() -> None:
    pinned, state = pinned_anchor(), anchored_state()
    blocks = BlockMap(parse_layout(pinned["layout"]))
    restored = {name: replace(bits, matrix=np.zeros_like(bits.matrix)) for name, bits in state.items()}
    for anchor in read_anchor(memoryview(pinned["object"]), blocks):
        assert anchor.seq == 2**40 + 5
        write_block(anchor, bind(blocks.layout, restored))
    assert same_bits(restored, state)
    manifest = parse_manifest(open_envelope(pinned["manifest"])[0])
    assert (manifest.target.digest, manifest.size_bytes) == (digest(state), len(pinned["object"]))


def test_the_pinned_anchor_has_packed_blocks_in_every_width_and_raw_ones() -> None:
    pinned = pinned_anchor()
    blocks = BlockMap(parse_layout(pinned["layout"]))
    found: dict[str, set[str]] = {"packed": set(), "raw": set()}
    for record in parse_object(memoryview(pinned["object"]))[2]:
        found[MODE_NAMES[record.mode]].add(blocks.block(record.block).dtype.name)
    assert found == {
        "packed": {"F8_E4M3", "F16", "BF16", "F32", "C64"},
        "raw": {"F8_E5M2", "I64", "BOOL"},
    }


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for suffix, content in golden_anchor().items():
        (GOLDEN / f"anchor.{suffix}").write_bytes(content)
    for name in CODECS:
        golden(name).save(GOLDEN / f"{name}.sgd")
