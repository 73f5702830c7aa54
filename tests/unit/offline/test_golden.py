"""Golden files: the bytes of format version 1, pinned. They change only together with the format's version.

Written once by `python -m tests.unit.offline.test_golden`; a reader in another language can be tried on them too.
"""

from pathlib import Path

import pytest

from sync_runtime.codec.frame import parse_object
from sync_runtime.codec.limits import MODE_NAMES
from sync_runtime.offline import Delta, apply, diff, layout_of, load
from sync_runtime.tensors.bits import BitTensor
from tests.support.states import copied, next_state, same_bits, small_state, stepped

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


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for name in CODECS:
        golden(name).save(GOLDEN / f"{name}.sgd")
