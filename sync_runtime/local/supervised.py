"""What a GPU worker tells the sidecar that started it: a line when it listens, and why it ended by its exit status.

Shared by both, who must not import each other: the worker needs torch, the sidecar must not have it. The worker ends
by itself when its standard input ends, so that none outlives a sidecar that was killed.
"""

from __future__ import annotations

from typing import Final

LISTENING: Final = "syncgroup-gpu-worker: listening"
"""The one line on its standard output that means something."""
SUPERVISED: Final = "--supervised"
"""The argument that makes a worker heed its standard input and say that it listens."""

EXIT_CANNOT_START: Final = 1
EXIT_GPU_FAILED: Final = 3
EXIT_NO_TORCH: Final = 4
EXIT_LEFT_ALONE: Final = 5
"""Whoever started it is gone, and its sessions did not end in time."""
