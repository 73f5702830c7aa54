"""Whether the environment, or the group's plan, asks for telemetry, and whether what it says can be used. Pure.

Off by default, unlike OpenTelemetry's own default: on when an exporter or an endpoint is named. The variables are
OpenTelemetry's own, and its SDK reads all of them by itself; those that would fail later, in the background and without
a word, are looked at here first. A plan's endpoint is for traces, and counts where the environment names none.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

DISABLED: Final = "OTEL_SDK_DISABLED"
ENDPOINT: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"
PROTOCOL: Final = "OTEL_EXPORTER_OTLP_PROTOCOL"
SPOKEN: Final = "http/protobuf"
TRACES_PATH: Final = "/v1/traces"
MAX_VALUE: Final = 4096
_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+\s*=[\x20-\x7e]*")


@dataclass(frozen=True)
class Switch:
    """What is on."""

    traces: bool = False
    metrics: bool = False
    problem: str = ""
    """Why something that was asked for is off."""
    traces_endpoint: str = ""
    """The plan's; empty: the SDK finds its own in the environment."""

    @property
    def on(self) -> bool:
        """Whether anything is."""
        return self.traces or self.metrics


def read_switch(environment: Mapping[str, str], endpoint: str = "") -> Switch:
    """What the environment asks for; `endpoint` is the plan's."""
    if environment.get(DISABLED, "").strip().lower() == "true":
        return Switch()
    problems: list[str] = []
    traces, metrics = (_asked(environment, signal, problems) for signal in ("TRACES", "METRICS"))
    planned = ""
    if not traces and endpoint and not _names_any(environment, "TRACES"):
        problem = _endpoint_problem("the plan's endpoint", endpoint) or _shared_problem(environment, "TRACES")
        problems += [problem] if problem else []
        traces, planned = not problem, "" if problem else endpoint.rstrip("/") + TRACES_PATH
    return Switch(traces, metrics, "; ".join(dict.fromkeys(problems)), planned)


def _names_any(environment: Mapping[str, str], signal: str) -> bool:
    """Whether the environment has a word of its own on where a signal goes."""
    names = (f"OTEL_{signal}_EXPORTER", f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT", ENDPOINT)
    return any(environment.get(name, "").strip() for name in names)


def _asked(environment: Mapping[str, str], signal: str, problems: list[str]) -> bool:
    exporter = environment.get(f"OTEL_{signal}_EXPORTER", "").strip().lower()
    name = f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT"
    name = name if environment.get(name) else ENDPOINT
    endpoint = environment.get(name, "")
    if exporter == "none" or not (exporter or endpoint):
        return False
    problem = ""
    if exporter not in ("", "otlp"):
        problem = f"OTEL_{signal}_EXPORTER={exporter:.40} is not spoken here; otlp and none are"
    elif endpoint:
        problem = _endpoint_problem(name, endpoint)
    problem = problem or _shared_problem(environment, signal)
    problems += [problem] if problem else []
    return not problem


def _shared_problem(environment: Mapping[str, str], signal: str) -> str:
    """What is wrong with the variables that every endpoint is used with; empty: nothing."""

    def value(name: str) -> tuple[str, str]:
        own = f"OTEL_EXPORTER_OTLP_{signal}_{name}"
        used = own if environment.get(own) else f"OTEL_EXPORTER_OTLP_{name}"
        return used, environment.get(used, "").strip()

    _, protocol = value("PROTOCOL")
    if protocol and protocol.lower() != SPOKEN:
        return f"the OTLP protocol {protocol:.40} is not spoken here; {SPOKEN} is"
    used, headers = value("HEADERS")
    if len(headers) > MAX_VALUE or not all(_HEADER.fullmatch(one.strip()) for one in headers.split(",") if one.strip()):
        return f"{used} must read name=value,name=value in printable ASCII; other characters as %XX"
    used, timeout = value("TIMEOUT")
    if timeout and not _is_duration(timeout):
        return f"{used} is {timeout!r:.40}; it must be a number of seconds above 0"
    used, compression = value("COMPRESSION")
    if compression and compression.lower() not in ("none", "gzip", "deflate"):
        return f"{used} is {compression!r:.40}; it must be none, gzip or deflate"
    return ""


def _endpoint_problem(name: str, endpoint: str) -> str:
    """What is wrong with an endpoint; empty: nothing. Its words are never repeated whole: it may hold a password."""
    wanted = f"{name} must be a URL such as http://collector:4318"
    if len(endpoint) > MAX_VALUE or not endpoint.isascii() or not endpoint.isprintable() or " " in endpoint:
        return f"{wanted}, in printable ASCII without spaces"
    try:
        parts = urlsplit(endpoint)
        host, port = parts.hostname, parts.port
    except ValueError:
        return wanted
    if parts.scheme not in ("http", "https") or not host or port == 0:
        return wanted
    if parts.username is not None or parts.password is not None:
        return f"{wanted}, without a password in it; OTEL_EXPORTER_OTLP_HEADERS is for secrets"
    return f"{wanted}, without a query" if parts.query or parts.fragment else ""


def _is_duration(text: str) -> bool:
    try:
        value = float(text)
    except ValueError:
        return False
    return math.isfinite(value) and value > 0
