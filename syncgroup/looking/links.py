"""`kubectl syncgroup links` as lines and as values: every link, what was measured, what was chosen, and why. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from sync_runtime.contract.plan import LinkPlan
from sync_runtime.contract.reports import LinkReport
from sync_runtime.contract.status import LinkStatus
from sync_runtime.contract.sync import MIB
from syncgroup.looking.facts import GroupFacts
from syncgroup.terminal import NOTHING, Cell, clean, micros, painted, rate, share, size, table
from syncgroup_operator.planning.conditions import LOSSY_PPM

_HEADS = ("LINK", "RATE", "RTT", "LOSS", "STREAMS", "BUCKET", "CODEC", "UTIL")
_WIDE_HEADS = (*_HEADS, "CAPACITY", "LEAST RTT", "CONTROL", "PAYLOADS", "SENDER", "PEER")


@dataclass(frozen=True, slots=True)
class LinkRow:
    """One link."""

    sender: str
    """`cluster/region`; the region alone where only the status tells of it."""
    receiver: str
    codec: str | None = None
    rate_bits_per_second: int | None = None
    rtt_micros: int | None = None
    loss_ppm: int | None = None
    streams: int | None = None
    bucket_bytes: int | None = None
    utilisation_percent: int | None = None
    capacity_bits_per_second: int | None = None
    min_rtt_micros: int | None = None
    congestion_control: str | None = None
    payloads: int | None = None
    reported_by: str | None = None
    peer: str | None = None
    store: str | None = None
    """The object store that stands between the two ends; None: streams."""
    why: str | None = None
    """Why streams and bucket size are what they are, by the sender."""
    planned: str | None = None
    """What the plan in force allows, and why."""


def link_rows(facts: GroupFacts) -> list[LinkRow]:
    """Every link that is known, by its two ends. Senders' own reports tell more than the status and are fresher."""
    found: dict[tuple[str, str], LinkRow] = {}
    for region in facts.status.regions:
        if region.link is not None:
            receiver = f"{region.cluster}/{region.region}"
            found[region.link.from_region, receiver] = _of_status(region.link, receiver)
    stored = {key: row for key, row in found.items() if row.store is not None}
    reports = [(one.name, link) for one in facts.members if one.report is not None for link in one.report.links]
    for name, link in sorted(reports, key=lambda pair: pair[1].payloads):
        receiver = f"{link.to_cluster}/{link.to_region}"
        found[link.from_region, receiver] = _of_report(name, link, receiver)
    found |= {key: row for key, row in stored.items() if not _is_within(key)}  # nobody dials where a store stands
    plans = {(link.from_region, f"{plan.cluster}/{plan.region}"): link for plan in facts.plans for link in plan.links}
    for key, planned in plans.items():
        before = found.get(key) or LinkRow(f"{planned.from_cluster}/{planned.from_region}", key[1])
        found[key] = _with_plan(before, planned)
    return [found[key] for key in sorted(found, key=lambda key: (key[1], key[0]))]


def _is_within(key: tuple[str, str]) -> bool:
    """Whether a link stays in its region: there members dial each other, whatever stands outside."""
    sender, receiver = key
    return sender == receiver.rpartition("/")[2]


def link_lines(facts: GroupFacts, *, wide: bool = False, colour: bool = False) -> list[str]:
    """A table, and under it every link's reasons."""
    rows = link_rows(facts)
    if not rows:
        return [f"{facts.name} has no link yet: a link is measured by the payloads that it carries"]
    cells = [_cells(row, wide=wide) for row in rows]
    lines = [*_store_lines(facts, colour=colour), *table(_WIDE_HEADS if wide else _HEADS, cells, colour=colour)]
    for row in rows:
        texts = (("store", row.store), ("now", row.why), ("plan", row.planned))
        told = [f"  {label}: {clean(text)}" for label, text in texts if text]
        if told:
            lines += ["", painted(f"{row.sender} → {row.receiver}", "strong", colour=colour), *told]
    lines += [painted(f"note: {clean(one)}", "dim", colour=colour) for one in facts.unseen]
    return lines


def _store_lines(facts: GroupFacts, *, colour: bool) -> Iterator[str]:
    """The object store as the trainer finds it, above the table."""
    store = facts.status.store
    if store is None:
        return
    version = NOTHING if store.version is None else str(store.version)
    yield f"store {clean(store.address)}  version {version}  put at {rate(store.rate_bits_per_second)}"
    if store.reason is not None:
        yield painted(f"  {store.reason}: {clean(store.message or '')}", "bad", colour=colour)
    yield ""


def link_documents(facts: GroupFacts) -> list[dict[str, Any]]:
    """For programs; the names of the contract."""
    return [dict(_camel(asdict(row))) for row in link_rows(facts)]


def _of_status(link: LinkStatus, receiver: str) -> LinkRow:
    return LinkRow(
        link.from_region, receiver, link.codec, link.rate_bits_per_second, link.rtt_micros, link.loss_ppm,
        link.streams, link.bucket_bytes, link.utilisation_percent, store=link.store, why=link.message,
    )  # fmt: skip


def _of_report(name: str, link: LinkReport, receiver: str) -> LinkRow:
    return LinkRow(
        sender=f"{link.from_cluster}/{link.from_region}", receiver=receiver, codec=link.codec,
        rate_bits_per_second=link.rate_bits_per_second, rtt_micros=link.rtt_micros, loss_ppm=link.loss_ppm,
        streams=link.streams, bucket_bytes=link.bucket_bytes, utilisation_percent=link.utilisation_percent,
        capacity_bits_per_second=link.capacity_bits_per_second, min_rtt_micros=link.min_rtt_micros,
        congestion_control=link.congestion_control, payloads=link.payloads, reported_by=name, peer=link.peer,
        why=link.message,
    )  # fmt: skip


def _with_plan(row: LinkRow, link: LinkPlan) -> LinkRow:
    streams, sizes = link.streams, link.bucket_bytes
    noun = "stream" if streams.seed == 1 else "streams"
    planned = (
        f"{link.codec}, {streams.seed} {noun} ({streams.min} to {streams.max}), buckets of {sizes.seed / MIB:g} MiB "
        f"({sizes.min / MIB:g} to {sizes.max / MIB:g})"
    )
    values = {name: getattr(row, name) for name in LinkRow.__dataclass_fields__}
    sender = f"{link.from_cluster}/{link.from_region}"
    told = f"{planned}: {link.message}" if link.message else planned
    return LinkRow(**{**values, "sender": sender, "codec": row.codec or link.codec, "planned": told})


def _cells(row: LinkRow, *, wide: bool) -> list[Cell | str]:
    lossy = row.loss_ppm is not None and row.loss_ppm > LOSSY_PPM
    cells: list[Cell | str] = [
        f"{row.sender} → {row.receiver}",
        rate(row.rate_bits_per_second),
        micros(row.rtt_micros),
        Cell(share(row.loss_ppm), "bad" if lossy else "plain"),
        NOTHING if row.streams is None else str(row.streams),
        size(row.bucket_bytes),
        row.codec or NOTHING,
        NOTHING if row.utilisation_percent is None else f"{row.utilisation_percent} %",
    ]
    if wide:
        count = NOTHING if row.payloads is None else str(row.payloads)
        cells += [rate(row.capacity_bits_per_second), micros(row.min_rtt_micros), row.congestion_control or NOTHING]
        cells += [count, row.reported_by or NOTHING, row.peer or NOTHING]
    return cells


def _camel(values: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        head, *tail = name.split("_")
        yield head + "".join(part.capitalize() for part in tail), value
