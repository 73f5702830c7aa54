"""A trace backend that is away, or silent, costs a sidecar nothing."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest

from sync_runtime import Publisher
from tests.support.groups import TRAINER, Group
from tests.support.models import nudge, small_model

pytestmark = pytest.mark.timeout(120)
pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="traces need the OTLP exporter")


def test_a_backend_that_does_not_answer_delays_nothing(tmp_path: Path) -> None:
    with Group(tmp_path, [TRAINER], ringBytes=1 << 20) as group, socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        group.environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}
        group.start("trainer-0")
        trained = small_model()
        with Publisher(trained, socket=group.socket("trainer-0")) as publisher:
            nudge(trained, 0)
            publisher.publish()
        began = time.monotonic()
        assert group.stop("trainer-0") == 0
        assert time.monotonic() - began < 6  # the exporter alone would try for ten seconds
