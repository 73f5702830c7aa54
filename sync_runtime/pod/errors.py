"""What keeps a pod from getting its plan or certificate. It never ends a sidecar: it is told, and tried again.

PodError                       a retry can help
├── UnusablePlanError          what the ConfigMap holds is no plan for this member
└── NoCertificateError         no certificate came of a request; `reason` says why, in one word
"""

from __future__ import annotations

from typing import ClassVar

from sync_runtime.errors import SyncError


class PodError(SyncError):
    """Not now."""

    retry_helps: ClassVar[bool] = True


class UnusablePlanError(PodError):
    """What the ConfigMap holds is no plan for this member."""


class NoCertificateError(PodError):
    """No certificate came of a request."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
