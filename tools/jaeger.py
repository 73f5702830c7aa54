"""A real trace backend on this machine: `python -m tools.jaeger` runs Jaeger until Ctrl-C, with traces in memory.

    with running(folder) as jaeger:
        jaeger.otlp       where spans go, for OTEL_EXPORTER_OTLP_ENDPOINT or a group's `telemetry.endpoint`
        jaeger.query      its query API

It listens on loopback only, on free ports. Its web page is a placeholder: the Go module does not hold the real one.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tools.errors import ToolError, sentence_for
from tools.kube import build, catalog

PROGRAM: Final = "jaeger"
HOST: Final = "127.0.0.1"
START_S: Final = 30.0
END_S: Final = 10.0
MAX_TRACES: Final = 10_000
_POLL_S: Final = 0.05


class JaegerError(ToolError):
    """Jaeger does not run."""


@dataclass(frozen=True)
class Jaeger:
    """One that runs."""

    otlp: str
    query: str
    log: Path

    def ask(self, path: str) -> Any:
        """A reading of its query API."""
        with urllib.request.urlopen(self.query + path, timeout=10) as answer:  # noqa: S310 our own http URL
            return json.load(answer)


def is_built() -> bool:
    """Whether the program is in the cache."""
    known = catalog.load()
    return build.installed_at(known.owner(PROGRAM), PROGRAM).exists()


def config(otlp_port: int, query_port: int, grpc_port: int) -> dict[str, Any]:
    """What Jaeger is told: OTLP over HTTP in, memory, the query API out; nothing listens beyond loopback."""
    return {
        "service": {
            "extensions": ["jaeger_storage", "jaeger_query"],
            "pipelines": {"traces": {"receivers": ["otlp"], "exporters": ["jaeger_storage_exporter"]}},
            "telemetry": {"metrics": {"level": "none"}, "logs": {"level": "warn"}},
        },
        "extensions": {
            "jaeger_query": {
                "storage": {"traces": "memory"},
                "http": {"endpoint": f"{HOST}:{query_port}"},
                "grpc": {"endpoint": f"{HOST}:{grpc_port}"},
            },
            "jaeger_storage": {"backends": {"memory": {"memory": {"max_traces": MAX_TRACES}}}},
        },
        "receivers": {"otlp": {"protocols": {"http": {"endpoint": f"{HOST}:{otlp_port}"}}}},
        "exporters": {"jaeger_storage_exporter": {"trace_storage": "memory"}},
    }


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Jaeger]:
    """One Jaeger until the block ends; its configuration and log are kept in `folder`. Raises JaegerError."""
    program = build.ensure(catalog.load(), [PROGRAM])[PROGRAM]
    otlp_port, query_port, grpc_port = _free_ports(3)
    # JSON is YAML; a file, since the ports stand in it and a command line is everybody's to read.
    path, log = folder / "jaeger.yaml", folder / "jaeger.log"
    path.write_text(json.dumps(config(otlp_port, query_port, grpc_port), indent=1), encoding="utf-8")
    with log.open("wb") as output:
        process = subprocess.Popen(
            [program, "--config", str(path)], stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=folder
        )
    try:
        found = Jaeger(f"http://{HOST}:{otlp_port}", f"http://{HOST}:{query_port}", log)
        _wait(found, process, otlp_port)
        yield found
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(jaeger: Jaeger, process: subprocess.Popen[bytes], otlp_port: int) -> None:
    end_s = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < end_s:
        try:
            jaeger.ask("/api/services")
            socket.create_connection((HOST, otlp_port), timeout=1).close()
        except OSError:
            time.sleep(_POLL_S)
        else:
            return
    words = jaeger.log.read_text(errors="replace").strip().splitlines()
    raise JaegerError(f"Jaeger did not start: {words[-1] if words else 'it said nothing'}")


def _free_ports(count: int) -> list[int]:
    """Ports that nobody has now; held open together, so that none comes twice."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind((HOST, 0))
        return [int(one.getsockname()[1]) for one in sockets]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one until Ctrl-C."""
    argparse.ArgumentParser(prog="python -m tools.jaeger", description=__doc__).parse_args(arguments)
    try:
        with tempfile.TemporaryDirectory(prefix="jaeger-") as folder, running(Path(folder)) as jaeger:
            sys.stdout.write(f"spans go to   {jaeger.otlp}\nquery API at  {jaeger.query}\nCtrl-C ends it.\n")
            sys.stdout.flush()
            signal.signal(signal.SIGTERM, signal.default_int_handler)  # a polite end ends Jaeger too
            signal.pause()
    except ToolError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    except OSError as error:
        sys.stderr.write(f"error: {sentence_for(error)}\n")
        return 2
    except KeyboardInterrupt:
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
