from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sync_runtime.contract.reports import LinkReport
from sync_runtime.links.meter import LinkEnds, LinkMeter
from sync_runtime.tuning.controller import LinkController
from sync_runtime.tuning.samples import PayloadSample
from tests.support.linksim import bounds

ENDS = LinkEnds("hub", "home", "spoke", "away", "relay-0")
WARM_BYTES = 10_000_000


def tcp_info(
    *, rtt_us: int = 100_000, min_rtt_us: int = 90_000, acked: int = 0, sent: int = 0, again: int = 0, length: int = 248
) -> bytes:
    data = bytearray(248)
    for offset, form, value in (
        (16, "=I", 1448),
        (68, "=I", rtt_us),
        (100, "=I", again // 1448),
        (120, "=Q", acked),
        (148, "=I", min_rtt_us),
        (168, "=Q", sent),
        (200, "=Q", sent),
        (208, "=Q", again),
    ):
        struct.pack_into(form, data, offset, value)
    return bytes(data[:length])


def payload(
    meter: LinkMeter,
    transfer: int = 1,
    *,
    streams: int = 2,
    size_bytes: int = 20_000_000,
    before: bytes = tcp_info(acked=WARM_BYTES),
    after: bytes = tcp_info(acked=2 * WARM_BYTES, sent=WARM_BYTES),
    waited_s: float = 0.0,
) -> PayloadSample:
    for _ in range(streams):
        meter.stream(transfer, size_bytes // streams, before, after, "bbr")
    return meter.payload_done(transfer, size_bytes, streams=streams, started_s=10.0, ended_s=12.0, waited_s=waited_s)


def test_a_payload_is_one_sample_of_all_its_streams() -> None:
    sample = payload(LinkMeter(ENDS))
    assert (sample.size_bytes, sample.duration_s, sample.streams) == (20_000_000, 2.0, 2)
    assert (sample.rtt_s, sample.min_rtt_s) == pytest.approx((0.1, 0.09))
    assert sample.sent_bytes == 2 * WARM_BYTES
    assert sample.whole
    assert (sample.windowed, sample.cold, sample.app_limited) == (False, False, False)


def test_retransmitted_bytes_are_those_of_this_payload() -> None:
    before = tcp_info(acked=WARM_BYTES, sent=5_000_000, again=400_000)
    after = tcp_info(acked=2 * WARM_BYTES, sent=15_000_000, again=500_000)
    sample = payload(LinkMeter(ENDS), before=before, after=after)
    assert sample.loss == pytest.approx(0.01)


def test_counters_that_went_back_belong_to_a_new_connection() -> None:
    before, after = tcp_info(acked=WARM_BYTES, sent=9_000_000), tcp_info(acked=WARM_BYTES, sent=1_000_000)
    assert payload(LinkMeter(ENDS), before=before, after=after).sent_bytes == 2_000_000


def test_an_older_kernel_counts_retransmitted_segments_only() -> None:
    before, after = tcp_info(sent=0, length=208), tcp_info(sent=10_000_000, again=144_800, length=208)
    assert payload(LinkMeter(ENDS), before=before, after=after).loss == pytest.approx(0.01448)


def test_a_kernel_that_says_nothing_leaves_figures_unknown() -> None:
    sample = payload(LinkMeter(ENDS), before=b"", after=b"")
    assert (sample.rtt_s, sample.min_rtt_s, sample.sent_bytes, sample.loss) == (0, 0, 0, 0)


def test_a_stream_fresh_from_its_handshake_makes_a_payload_cold() -> None:
    meter = LinkMeter(ENDS)
    meter.stream(1, 10_000_000, tcp_info(acked=3_000), tcp_info(acked=WARM_BYTES))
    assert payload(meter).cold


def test_a_stream_that_carried_nothing_says_nothing() -> None:
    meter = LinkMeter(ENDS)
    meter.stream(1, 0, tcp_info(acked=3_000), tcp_info(rtt_us=9_000_000))
    sample = payload(meter)
    assert not sample.cold
    assert sample.rtt_s == pytest.approx(0.1)


def test_waiting_for_the_sender_is_told() -> None:
    assert payload(LinkMeter(ENDS), waited_s=0.5).app_limited
    assert not payload(LinkMeter(ENDS), waited_s=0.1).app_limited


def test_what_another_transfer_took_meanwhile_was_carried_too() -> None:
    meter = LinkMeter(ENDS)
    meter.acknowledged(1, 1_000_000, 10.5, streams=2)
    meter.acknowledged(2, 3_000_000, 11.0, streams=2)
    assert payload(meter, 1).size_bytes == 23_000_000


def acknowledge(
    meter: LinkMeter, seconds: float, *, from_s: float = 0.0, rate: float = 10e6, streams: int = 4
) -> list[PayloadSample]:
    """Acknowledgements every 20 ms."""
    samples = []
    for number in range(int(seconds * 50)):
        sample = meter.acknowledged(1, int(rate / 50), from_s + number / 50, streams=streams)
        if sample is not None:
            samples.append(sample)
    return samples


def test_a_short_payload_gives_no_windows() -> None:
    meter = LinkMeter(ENDS)
    assert acknowledge(meter, 3.5) == []
    assert not payload(meter).windowed


def test_a_long_payload_gives_windows_at_its_rate_and_says_so_at_its_end() -> None:
    meter = LinkMeter(ENDS)
    samples = acknowledge(meter, 6.5)
    assert len(samples) == 3
    for sample in samples:
        assert sample.rate_bytes_per_s == pytest.approx(10e6, rel=0.01)
        assert not sample.whole
    assert payload(meter).windowed


def test_windows_are_longer_on_longer_ways() -> None:
    meter = LinkMeter(ENDS)
    payload(meter, after=tcp_info(rtt_us=500_000))
    assert len(acknowledge(meter, 16.5)) == 1


def test_a_window_of_few_large_buckets_goes_on_until_there_are_enough() -> None:
    meter = LinkMeter(ENDS)
    samples = [meter.acknowledged(1, 5_000_000, 0.5 * number, streams=4) for number in range(65)]
    assert [number for number, sample in enumerate(samples) if sample] == [64]
    assert samples[-1] is not None
    assert samples[-1].duration_s == 8.0


def test_more_streams_begin_a_new_window_and_make_it_cold() -> None:
    meter = LinkMeter(ENDS)
    acknowledge(meter, 4.5)
    samples = acknowledge(meter, 3.0, from_s=4.5, streams=8)
    assert [(sample.streams, sample.cold) for sample in samples] == [(8, True), (8, False)]


def test_a_window_in_which_nothing_came_is_an_outage() -> None:
    meter = LinkMeter(ENDS)
    assert meter.idle(5.0) is None  # nothing runs
    meter.acknowledged(1, 1_000_000, 10.0, streams=4)
    assert meter.idle(10.5) is None
    sample = meter.idle(13.0)
    assert sample is not None
    assert (sample.size_bytes, sample.duration_s, sample.streams) == (0, 3.0, 4)
    assert meter.idle(13.5) is None


def test_an_abandoned_transfer_leaves_nothing() -> None:
    meter = LinkMeter(ENDS)
    acknowledge(meter, 10.0)
    meter.abandoned(1)
    assert meter.idle(100.0) is None
    assert not payload(meter).windowed


def test_the_report_says_what_was_measured_and_why_the_link_is_used_so() -> None:
    meter, controller = LinkMeter(ENDS), LinkController(None, bounds(2))
    for number in range(3):
        controller.observe(payload(meter), 10.0 * number)
    report = meter.report(controller)
    assert LinkReport.parse(report.to_document()) == report
    assert report.payloads == 3
    assert report.rate_bits_per_second == pytest.approx(8 * 20_000_000 / 1.91, rel=0.01)
    assert (report.rtt_micros, report.min_rtt_micros, report.congestion_control) == (100_000, 90_000, "bbr")
    assert report.streams == controller.decision.streams
    assert report.message == controller.decision.reason
    assert report.utilisation_percent is not None
    assert 95 <= report.utilisation_percent <= 100


def test_a_link_without_payloads_has_a_report_too() -> None:
    report = LinkMeter(ENDS).report(LinkController(None, bounds(2)))
    assert (report.payloads, report.congestion_control) == (0, "unknown")
    measured = {"rateBitsPerSecond", "capacityBitsPerSecond", "rttMicros", "minRttMicros", "lossPpm"}
    assert not {*measured, "utilisationPercent"} & set(report.to_document()), "what nobody measured is absent, not 0"


@pytest.mark.parametrize("name", ["", "BBR", "x" * 17, "bbr\n", "b b"])
def test_a_name_that_no_kernel_gives_is_not_reported(name: str) -> None:
    meter = LinkMeter(ENDS)
    meter.stream(1, 1000, b"", b"", name)
    assert meter.report(LinkController(None, bounds())).congestion_control == "unknown"


reals = st.floats(allow_nan=True, allow_infinity=True)


@settings(deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("ack"), st.integers(0, 100), st.integers(-5, 10**12), reals, st.integers(0, 70)),
            st.tuples(st.just("idle"), st.just(0), st.just(0), reals, st.just(0)),
            st.tuples(st.just("stream"), st.integers(0, 100), st.integers(-5, 10**12), reals, st.integers(0, 248)),
            st.tuples(st.just("done"), st.integers(0, 100), st.integers(-5, 10**12), reals, st.integers(0, 70)),
        ),
        max_size=60,
    ),
    st.binary(min_size=248, max_size=248),
)
@pytest.mark.timeout(20)
def test_any_happenings_give_samples_that_the_controller_takes_and_a_report(
    happenings: list[tuple[str, int, int, float, int]], info: bytes
) -> None:
    meter, controller = LinkMeter(ENDS), LinkController(None, bounds())
    for what, transfer, size_bytes, now_s, number in happenings:
        sample = None
        if what == "ack":
            sample = meter.acknowledged(transfer, size_bytes, now_s, streams=number)
        elif what == "idle":
            sample = meter.idle(now_s)
        elif what == "stream":
            meter.stream(transfer, size_bytes, info[:number], info, "bbr")
        else:
            sample = meter.payload_done(transfer, size_bytes, streams=number, started_s=0.0, ended_s=now_s)
        if sample is not None:
            controller.observe(sample, now_s)
    report = meter.report(controller)
    assert LinkReport.parse(report.to_document()) == report
