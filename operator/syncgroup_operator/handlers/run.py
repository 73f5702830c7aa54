"""The operator's process: one loop for kopf and the engine.

kopf starts first and ends last: its start-up handler starts the engine, its clean-up handler ends it. A replica that
loses leadership ends as a whole; Kubernetes starts it again.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import kopf

from sync_runtime.contract.names import API_GROUP
from syncgroup_operator.errors import OperatorError
from syncgroup_operator.execute.engine import Engine
from syncgroup_operator.handlers.login import login
from syncgroup_operator.handlers.metrics import MetricsServer
from syncgroup_operator.handlers.probes import UnhealthyError, health_of
from syncgroup_operator.handlers.tracing import start_tracing
from syncgroup_operator.handlers.triggers import register
from syncgroup_operator.settings import OperatorSettings, from_environment

KOPF_FINALIZER: Final = f"{API_GROUP}/informer"
"""Never set: kopf wants to know a name."""
EXIT_LOST: Final = 3
"""Leadership was lost; another replica acts now."""
_log = logging.getLogger(__name__)


def main(environment: Mapping[str, str]) -> int:
    """Runs one replica until it is told to stop; returns the exit code."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("kopf").setLevel(logging.WARNING)  # it says "succeeded" for every event it hands on
    try:
        settings = from_environment(environment)
        return asyncio.run(operate(settings, environment))
    except OperatorError as error:
        _log.error("%s", error)
        return 2


async def operate(settings: OperatorSettings, environment: Mapping[str, str] = MappingProxyType({})) -> int:
    """One replica, from start to a signal or to the loss of leadership; the environment may ask for traces."""
    tracing = start_tracing(environment, settings)
    engine = Engine(settings, passes=tracing)
    metrics = MetricsServer(engine, settings.health_host, settings.metrics_port)
    stop = asyncio.Event()
    registry = kopf.OperatorRegistry()
    register(registry, engine)
    _lifecycle(registry, engine, metrics, stop)
    await kopf.operator(
        registry=registry,
        settings=kopf_settings(),
        standalone=True,
        # kopf would ask who the user is, and a container's number need not have a name.
        identity=settings.identity,  # type: ignore[arg-type]  # its own kind of text, which it does not export
        clusterwide=not settings.watch_namespaces,
        namespaces=settings.watch_namespaces,
        liveness_endpoint=f"http://{settings.health_host}:{settings.health_port}/healthz",
        stop_flag=stop,
    )
    if tracing is not None:
        await asyncio.to_thread(tracing.close)
    return EXIT_LOST if engine.lost.is_set() else 0


class NoMemory(kopf.DiffBaseStorage):
    """Nothing of an object is kept to be compared later: kopf would copy every object that it sees, whole, three times.

    What changed is none of its business here: a wake-up says only "look again".
    """

    def build(self, *, body: kopf.Body, extra_fields: Any = None) -> kopf.BodyEssence:
        """What counts as a change: nothing."""
        return kopf.BodyEssence()

    def fetch(self, *, body: kopf.Body) -> kopf.BodyEssence | None:
        """What was kept: nothing."""
        return None

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:
        """Keep nothing."""


def kopf_settings() -> kopf.OperatorSettings:
    """kopf as an informer: nothing is kept on objects, nothing is posted by it, dead streams are noticed."""
    settings = kopf.OperatorSettings()
    # kopf takes its own finalizer off whatever needs none for its handlers, and ours need none: it must not be the one
    # that the engine puts on, or the two write against each other for ever.
    settings.persistence.finalizer = KOPF_FINALIZER
    settings.persistence.diffbase_storage = NoMemory()
    settings.posting.enabled = False
    settings.peering.standalone = True
    settings.networking.request_timeout = 30
    settings.networking.connect_timeout = 5
    settings.queueing.worker_limit = 50
    settings.queueing.idle_timeout = 0.3
    settings.process.ultimate_exiting_timeout = 25
    settings.watching.chunk_size = 500
    return settings


def _lifecycle(registry: kopf.OperatorRegistry, engine: Engine, metrics: MetricsServer, stop: asyncio.Event) -> None:
    tasks: list[asyncio.Task[None]] = []

    @kopf.on.login(registry=registry)
    async def log_in(**_: Any) -> kopf.ConnectionInfo:
        return await login(engine.settings.kubeconfig)

    @kopf.on.startup(registry=registry)
    async def start(**_: Any) -> None:
        await engine.start()
        await metrics.start()

        async def watch_loss() -> None:
            await engine.lost.wait()
            stop.set()

        tasks.append(asyncio.create_task(watch_loss(), name="watch for lost leadership"))

    @kopf.on.cleanup(registry=registry)
    async def end(**_: Any) -> None:
        for task in tasks:
            task.cancel()
        await metrics.close()
        await engine.stop()

    @kopf.on.probe(id="health", registry=registry)
    async def health(**_: Any) -> dict[str, Any]:
        found = health_of(engine)
        problem = found.problem()
        if problem is not None:
            raise UnhealthyError(problem)
        return dataclasses.asdict(found)
