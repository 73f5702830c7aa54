"""What sidecar processes of tests begin with: everything imported, compiled loops loaded. See `sidecars`."""

from __future__ import annotations

import importlib

from tests.support.states import compile_loops

importlib.import_module("sync_runtime.sidecar")
compile_loops()
