"""The sidecar: composition root of everything that runs beside the user's process. No torch."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

from sync_runtime.control.api import ControlServer
from sync_runtime.errors import SettingsError
from sync_runtime.identity.errors import IdentityError, WrongGroupError
from sync_runtime.settings import SidecarSettings, from_environment
from sync_runtime.sidecar.brain import Sidecar
from sync_runtime.sidecar.reports import TroubleOf, no_trouble
from sync_runtime.sidecar.view import View
from sync_runtime.standalone import load_group, settings_of

__all__ = ["Sidecar", "run_sidecar", "serve"]
_log = logging.getLogger(__name__)


def run_sidecar(*, config: Path | None, member: str | None, environment: Mapping[str, str]) -> int:
    """Runs one member's sidecar until it is told to stop; returns the exit code."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    if config is not None and member is not None:
        settings = settings_of(load_group(config), member, config.resolve())
    else:
        settings = from_environment(environment)
    asyncio.run(serve(settings, environment))
    return 0


async def serve(settings: SidecarSettings, environment: Mapping[str, str]) -> None:
    """The sidecar from start to a signal."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if settings.in_pod:
        await _serve_in_pod(settings, environment, stop)
        return
    sidecar = _build(settings, environment, no_trouble)
    control = ControlServer(View(sidecar), settings.control)
    try:
        await sidecar.start()
        await _start_control(control, settings)
        _say_where(sidecar, control)
        await stop.wait()
    finally:
        await control.close()
        await sidecar.close()


async def _serve_in_pod(settings: SidecarSettings, environment: Mapping[str, str], stop: asyncio.Event) -> None:
    """Answers its probes first; becomes a whole sidecar when the API server has given it a plan and a certificate."""
    # With them comes the client of Kubernetes, which a group without it need not load.
    from sync_runtime.pod.provision import Provision  # noqa: PLC0415
    from sync_runtime.sidecar.starting import Starting  # noqa: PLC0415

    provision = Provision(settings)
    starting = Starting(settings, provision)
    control = ControlServer(starting, settings.control)
    sidecar: Sidecar | None = None
    try:
        await _start_control(control, settings)
        _log.info("the sidecar of %s starts: control http://127.0.0.1:%d", settings.member, control.port)
        provision.start()
        if not await starting.wait(stop):
            return
        sidecar = _build(settings, environment, lambda: provision.trouble)
        sidecar.draining = starting.draining
        await sidecar.start()
        control.view = View(sidecar)
        _say_where(sidecar, control)
        await stop.wait()
    finally:
        await control.close()
        await provision.close()
        if sidecar is not None:
            await sidecar.close()


def _build(settings: SidecarSettings, environment: Mapping[str, str], trouble: TroubleOf) -> Sidecar:
    try:
        return Sidecar(settings, environment, trouble)
    except IdentityError as error:
        raise SettingsError(f"the certificates of {settings.member} cannot be used: {error}{_hint(error)}") from error


def _hint(error: IdentityError) -> str:
    """A group's uid is made from its name where nobody gives one; nobody knows it by heart."""
    return " (`certs init --group` must name the group of group.toml)" if isinstance(error, WrongGroupError) else ""


def _say_where(sidecar: Sidecar, control: ControlServer) -> None:
    port = "none" if sidecar.listener is None else str(sidecar.listener.port)
    _log.info(
        "sidecar of %s, group %s: data port %s, control http://127.0.0.1:%d",
        sidecar.settings.member, sidecar.settings.group, port, control.port,
    )  # fmt: skip


async def _start_control(control: ControlServer, settings: SidecarSettings) -> None:
    try:
        await control.start()
    except OSError as error:
        raise SettingsError(f"the control API cannot listen on {settings.control}: {error.strerror}") from error
