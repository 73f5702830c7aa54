"""What sidecar processes of tests begin with: everything imported, compiled loops loaded. See `sidecars`."""

from __future__ import annotations

import sync_runtime.sidecar
import syncgroup.commands.sidecar  # noqa: F401
from tests.support.states import compile_loops

compile_loops()
