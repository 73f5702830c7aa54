"""The bounds of a link come from the child's plan and never leave what is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sync_runtime.settings import Address, SidecarSettings
from sync_runtime.sidecar.tuned import DEFAULT_BUCKETS, DEFAULT_STREAMS, bounds_of
from sync_runtime.transport.messages import Bounds, Follow

HERE = Path("nowhere")
SETTINGS = SidecarSettings(
    group="demo", group_namespace="default", group_uid="0b9a4c1e-1d1f-4c52-9d1f-6f3f0c1c2a3b", member="trainer-0",
    role="trainer", cluster="local", region="us", plan_path=HERE, identity_dir=HERE, spool_dir=HERE, socket_path=HERE,
    listen=Address("127.0.0.1", 0), control=Address("127.0.0.1", 0),
)  # fmt: skip
BOUNDS = st.builds(Bounds, seed=st.integers(0, 2**53 - 1), min=st.integers(0, 2**53 - 1), max=st.integers(0, 2**53 - 1))


def follow(streams: Bounds | None, bucket_bytes: Bounds | None, codec: str = "fast") -> Follow:
    return Follow.model_validate(
        {
            "lineage": None, "seq": None, "digest": None, "codecs": [codec], "out_of_service": False,
            "want_anchor": False, "streams": streams, "bucket_bytes": bucket_bytes,
        }
    )  # fmt: skip


def test_a_child_that_says_nothing_gets_the_defaults() -> None:
    for message in (None, follow(None, None)):
        bounds = bounds_of(message, SETTINGS)
        assert (bounds.streams, bounds.bucket_bytes, bounds.codec) == (DEFAULT_STREAMS, DEFAULT_BUCKETS, "Fast")


def test_the_childs_plan_is_followed() -> None:
    message = follow(Bounds(seed=3, min=2, max=5), Bounds(seed=131072, min=65536, max=1 << 20), "tight")
    bounds = bounds_of(message, SETTINGS)
    assert (bounds.streams.min, bounds.streams.seed, bounds.streams.max) == (2, 3, 5)
    assert (bounds.bucket_bytes.min, bounds.bucket_bytes.seed, bounds.bucket_bytes.max) == (65536, 131072, 1 << 20)
    assert bounds.codec == "Tight"


@given(BOUNDS, BOUNDS)
def test_whatever_a_child_says_stays_inside_the_limits(streams: Bounds, bucket_bytes: Bounds) -> None:
    bounds = bounds_of(follow(streams, bucket_bytes), SETTINGS)
    assert 1 <= bounds.streams.min <= bounds.streams.seed <= bounds.streams.max <= 64
    sizes = bounds.bucket_bytes
    assert 65536 <= sizes.min <= sizes.seed <= sizes.max <= 16 << 20


@pytest.mark.parametrize("asked", [1, 63, 64])
def test_the_most_streams_are_the_childs(asked: int) -> None:
    assert bounds_of(follow(Bounds(seed=1, min=1, max=asked), None), SETTINGS).streams.max == asked
