"""The engine's figures for Prometheus, under names that people know from other controllers, plus our own.

Counted where things happen, in plain numbers; read here when somebody asks. Names live in this module alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from aiohttp import web
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from sync_runtime.contract.names import LOCAL_CLUSTER
from syncgroup_operator.execute.engine import Engine
from syncgroup_operator.handlers.probes import health_of


class EngineCollector:
    """Reads an engine when it is scraped."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def collect(self) -> Iterator[Metric]:
        """All families."""
        engine = self._engine
        health = health_of(engine)
        yield gauge("leader_election_master_status", "1 on the replica that acts.", {(): float(engine.leading)})
        yield gauge("workqueue_depth", "Groups that are due and wait.", {("syncgroup",): health.queue_depth}, "name")
        yield gauge(
            "workqueue_longest_waiting_seconds",
            "How long the group that waits longest has been due.",
            {("syncgroup",): health.queue_oldest_s},
            "name",
        )
        yield gauge("syncgroup_groups", "SyncGroups seen.", {(): health.groups})
        yield gauge("syncgroup_watches_live", "Watches of the hub that miss nothing.", {(): health.live_watches})
        yield self._clusters()
        yield self._requests()
        yield from self._passes()
        signing = engine.signing
        yield counter(
            "syncgroup_certificate_requests",
            "Members' certificate requests answered.",
            {("issued",): signing.issued, ("denied",): signing.denied},
            "answer",
        )

    def _clusters(self) -> Metric:
        found: dict[tuple[str, ...], float] = {
            (remote.name,): float(remote.is_connected()) for remote in self._engine.clusters.remotes()
        }
        return gauge("syncgroup_cluster_connected", "1 while every watch of the cluster is live.", found, "cluster")

    def _requests(self) -> Metric:
        family = CounterMetricFamily(
            "rest_client_requests", "Requests to API servers.", labels=["cluster", "verb", "kind", "code"]
        )
        for name in (LOCAL_CLUSTER, *(remote.name for remote in self._engine.clusters.remotes())):
            client = self._engine.clusters.client(name)
            for (verb, kind, code), count in (client.requests if client is not None else {}).items():
                family.add_metric([name, verb, kind, str(code)], count)
        return family

    def _passes(self) -> Iterator[Metric]:
        reconciler = self._engine.reconciler
        if reconciler is None:
            return
        figures = reconciler.figures
        yield gauge(
            "syncgroup_groups_observed",
            "SyncGroups that this replica has looked at in all their clusters.",
            {(): len(reconciler.observed)},
        )
        yield counter("syncgroup_actions", "Objects applied or deleted.", {(): figures.actions})
        yield counter("syncgroup_status_writes", "Statuses written.", {(): figures.status_writes})
        yield counter(
            "syncgroup_replacements",
            "Members replaced, by reason.",
            {(reason,): count for reason, count in figures.replacements.items()},
            "reason",
        )


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


def gauge(name: str, text: str, values: Mapping[tuple[str, ...], float], *labels: str) -> Metric:
    """A family of gauges."""
    family = GaugeMetricFamily(name, text, labels=list(labels))
    for key, value in values.items():
        family.add_metric(list(key), value)
    return family


def counter(name: str, text: str, values: Mapping[tuple[str, ...], int], *labels: str) -> Metric:
    """A family of counters."""
    family = CounterMetricFamily(name, text, labels=list(labels))
    for key, value in values.items():
        family.add_metric(list(key), value)
    return family
