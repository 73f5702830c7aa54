"""One trace per version and a few metrics, for the user's OpenTelemetry backend; off unless somebody asks for it.

`start` decides. Off, nothing of OpenTelemetry is imported and every call is a few empty lines. Sidecars make spans from
timings that they already have; the library makes none. Knows nothing of sessions, links or weights: names, times and
texts come in as arguments.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from sync_runtime.telemetry.errors import INSTALL, TelemetryError
from sync_runtime.telemetry.off import OFF, OffTelemetry
from sync_runtime.telemetry.surface import Origin, Telemetry
from sync_runtime.telemetry.switch import read_switch

_log = logging.getLogger(__name__)


def start(environment: Mapping[str, str], origin: Origin, endpoint: str = "") -> Telemetry:
    """What the environment asks for; what is wrong with it is logged once and never stops a sidecar.

    `environment` is the process's own: the SDK reads the variables that are not about on and off by itself. `endpoint`
    is the plan's, for traces, where the environment names none.
    """
    switch = read_switch(environment, endpoint)
    if not switch.on:
        if not switch.problem:
            return OFF
        _log.warning("telemetry stays off: %s", switch.problem)
        return OffTelemetry(switch.problem)
    try:
        from sync_runtime.telemetry.export import check_files  # noqa: PLC0415 only when it is asked for
        from sync_runtime.telemetry.otel import OtelTelemetry  # noqa: PLC0415

        check_files(environment)
        return OtelTelemetry(switch, origin)
    except ModuleNotFoundError as error:
        problem = f"the Python package {error.name} is missing: {INSTALL}"
    except TelemetryError as error:
        problem = str(error)
    except ValueError as error:
        problem = f"OpenTelemetry does not accept one of its variables: {error}"
    _log.warning("telemetry stays off: %s", problem)
    return OffTelemetry(problem)
