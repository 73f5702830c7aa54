"""The engine's figures for Prometheus, under the names of `contract.figures.operator`.

Counted where things happen, in plain numbers; read here when somebody asks. Makes up no name of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from aiohttp import web
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from sync_runtime.contract.figures import Figure
from sync_runtime.contract.figures import operator as names
from sync_runtime.contract.names import LOCAL_CLUSTER
from syncgroup_operator.execute.engine import Engine
from syncgroup_operator.execute.timings import CONTROLLER
from syncgroup_operator.handlers.group_figures import GroupFigures, Row
from syncgroup_operator.handlers.probes import health_of


class EngineCollector:
    """Reads an engine when it is scraped."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._groups = GroupFigures()

    def collect(self) -> Iterator[Metric]:
        """All families."""
        engine = self._engine
        health = health_of(engine)
        yield family(names.LEADER, {(): float(engine.leading)})
        yield family(names.QUEUE_DEPTH, {(CONTROLLER,): health.queue_depth})
        yield family(names.QUEUE_OLDEST, {(CONTROLLER,): health.queue_oldest_s})
        yield family(names.GROUPS, {(): health.groups})
        yield family(names.WATCHES_LIVE, {(): health.live_watches})
        remotes = engine.clusters.remotes()
        yield family(names.CLUSTER_CONNECTED, {(remote.name,): float(remote.is_connected()) for remote in remotes})
        yield self._requests()
        yield from self._passes()
        signing = engine.signing
        yield family(names.CERTIFICATE_REQUESTS, {("issued",): signing.issued, ("denied",): signing.denied})
        if engine.leading:  # every replica sees the statuses; figures of all would be counted twice
            yield from families(names.GROUP_FIGURES, self._groups.rows(engine.groups))

    def _requests(self) -> Metric:
        found: dict[tuple[str, ...], float] = {}
        for name in (LOCAL_CLUSTER, *(remote.name for remote in self._engine.clusters.remotes())):
            client = self._engine.clusters.client(name)
            for (verb, kind, code), count in (client.requests if client is not None else {}).items():
                found[name, verb, kind, str(code)] = count
        return family(names.REQUESTS, found)

    def _passes(self) -> Iterator[Metric]:
        reconciler = self._engine.reconciler
        if reconciler is None:
            return
        figures = reconciler.figures
        yield family(names.GROUPS_OBSERVED, {(): len(reconciler.observed)})
        yield family(names.ACTIONS, {(): figures.actions})
        yield family(names.STATUS_WRITES, {(): figures.status_writes})
        yield family(names.SPANS_DROPPED, {(): self._engine.dropped_spans})
        yield family(names.REPLACEMENTS, {(reason,): count for reason, count in figures.replacements.items()})
        yield family(names.LEASE_EXPIRIES, {(): figures.lease_expiries})


class MetricsServer:
    """`/metrics` on a port of its own, and `/readyz`."""

    def __init__(self, engine: Engine, host: str, port: int) -> None:
        self._engine = engine
        self._host = host
        self._port = port
        self._registry = engine.timings.registry
        self._registry.register(EngineCollector(engine))
        self._runner: web.AppRunner | None = None
        self.bound_port = 0

    async def start(self) -> None:
        """Listen."""
        app = web.Application()
        app.add_routes([web.get("/metrics", self._metrics), web.get("/readyz", self._ready)])
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, self._port)
        await site.start()
        self.bound_port = int(self._runner.addresses[0][1])

    async def close(self) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _metrics(self, _request: web.Request) -> web.Response:
        return web.Response(body=generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _ready(self, _request: web.Request) -> web.Response:
        health = health_of(self._engine)
        ready = health.watches > 0 and health.live_watches == health.watches
        text = f"{health.live_watches} of {health.watches} watches of the hub are live"
        return web.Response(status=200 if ready else 503, text=text)


def family(figure: Figure, values: Mapping[tuple[str, ...], float]) -> Metric:
    """A figure with its values by labels."""
    kind = CounterMetricFamily if figure.kind == "counter" else GaugeMetricFamily
    found = kind(figure.family, figure.meaning, labels=figure.labels)
    for labels, value in values.items():
        found.add_metric(labels, value)
    return found


def families(figures: Iterable[Figure], rows: Iterable[Row]) -> Iterator[Metric]:
    """Rows of several figures, each figure's together."""
    values: dict[Figure, dict[tuple[str, ...], float]] = {figure: {} for figure in figures}
    for figure, labels, value in rows:
        values[figure][labels] = value
    yield from (family(figure, found) for figure, found in values.items())
