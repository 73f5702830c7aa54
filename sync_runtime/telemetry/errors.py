"""What can go wrong when telemetry starts. It never leaves this package: a sidecar runs without telemetry too.

TelemetryError        what was asked for cannot be done here; the sentence says what to install
"""

from __future__ import annotations

from typing import Final

from sync_runtime.errors import SyncError

INSTALL: Final = "pip install 'syncgroup[sidecar]'"


class TelemetryError(SyncError):
    """Telemetry that was asked for cannot be."""
