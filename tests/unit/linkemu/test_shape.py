from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.linkemu import BurstLoss, CrossTraffic, LinkShape, Policer, ShapeError, format_link, parse_link

_COUNT = st.integers(1, 10**12)
_PPM = st.integers(0, 1_000_000)
_SHAPES = st.builds(
    LinkShape,
    rate_bps=st.integers(0, 10**12),
    delay_us=st.integers(0, 10**9),
    jitter_us=st.integers(0, 10**9),
    reorder=st.booleans(),
    loss_ppm=_PPM,
    burst=st.none() | st.builds(BurstLoss, enter_ppm=st.integers(1, 1_000_000), exit_ppm=_PPM, loss_ppm=_PPM),
    queue_bytes=st.none() | _COUNT,
    policer=st.none() | st.builds(Policer, rate_bps=_COUNT, burst_bytes=_COUNT),
    cross=st.none() | st.builds(CrossTraffic, rate_bps=_COUNT, on_us=_COUNT, off_us=_COUNT),
)


def test_the_short_form_gives_each_direction_half_of_the_round_trip() -> None:
    assert parse_link("100ms/500M/0.1%") == LinkShape(rate_bps=500_000_000, delay_us=50_000, loss_ppm=1_000)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("0ms/max/0%", LinkShape(), id="a perfect link"),
        pytest.param("1.5s/9.6K/100%", LinkShape(rate_bps=9_600, delay_us=750_000, loss_ppm=1_000_000), id="fractions"),
        pytest.param(
            "60ms/100M/0%,queue=120K,jitter=800us,reorder",
            LinkShape(rate_bps=100_000_000, delay_us=30_000, queue_bytes=120_000, jitter_us=800, reorder=True),
            id="queue and jitter",
        ),
        pytest.param(
            "80ms/200M/0%,burst=0.02%:10%:80%",
            LinkShape(
                rate_bps=200_000_000,
                delay_us=40_000,
                burst=BurstLoss(enter_ppm=200, exit_ppm=100_000, loss_ppm=800_000),
            ),
            id="bursty loss",
        ),
        pytest.param(
            "20ms/1G/0%,police=800M:1M,cross=100M:500ms:250ms",
            LinkShape(
                rate_bps=1_000_000_000,
                delay_us=10_000,
                policer=Policer(rate_bps=800_000_000, burst_bytes=1_000_000),
                cross=CrossTraffic(rate_bps=100_000_000, on_us=500_000, off_us=250_000),
            ),
            id="policer and cross traffic",
        ),
        pytest.param(
            "2us/1G/0%,cross=1M",
            LinkShape(rate_bps=1_000_000_000, delay_us=1, cross=CrossTraffic(rate_bps=1_000_000)),
            id="constant cross traffic",
        ),
    ],
)
def test_the_short_form_is_read_as_documented(text: str, expected: LinkShape) -> None:
    assert parse_link(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "100ms",
        "100ms/500M",
        "100ms/500M/0.1%/x",
        "100/500M/0.1%",
        "100ms/500/0.1",
        "100ms/fast/0%",
        "100ms/500m/0%",
        "-5ms/500M/0%",
        "1e3ms/500M/0%",
        "100ms/500M/101%",
        "100ms/500M/0.00001%",
        "0.1us/500M/0%",
        "100ms/500M/0%,",
        "100ms/500M/0%,queue",
        "100ms/500M/0%,queue=0",
        "100ms/500M/0%,queue=1.5",
        "100ms/500M/0%,reorder=1",
        "100ms/500M/0%,burst=1%:1%",
        "100ms/500M/0%,police=1M",
        "100ms/500M/0%,cross=1M:1s",
        "100ms/500M/0%,colour=red",
        "\u0661ms/500M/0%",
        "99999999999999999999s/1M/0%",
    ],
)
def test_what_is_no_link_is_refused_with_its_own_error(text: str) -> None:
    with pytest.raises(ShapeError):
        parse_link(text)


def test_a_refusal_shows_the_form_to_write() -> None:
    with pytest.raises(ShapeError, match=r"RTT/RATE/LOSS.*100ms/500M/0\.1%"):
        parse_link("fast please")


@given(_SHAPES)
def test_what_is_printed_reads_back_the_same(shape: LinkShape) -> None:
    assert parse_link(format_link(shape)) == shape


@given(_SHAPES)
def test_the_emulators_settings_read_back_the_same(shape: LinkShape) -> None:
    assert LinkShape.from_settings(shape.settings()) == shape


@pytest.mark.timeout(20)
@given(st.text(max_size=60))
def test_no_text_at_all_makes_the_parser_fail_otherwise(text: str) -> None:
    with contextlib.suppress(ShapeError):
        assert isinstance(parse_link(text), LinkShape)


def test_the_mean_loss_of_bursts_is_the_share_of_time_in_them() -> None:
    assert BurstLoss(enter_ppm=1_000, exit_ppm=99_000, loss_ppm=500_000).mean_loss_ppm == pytest.approx(5_000)
