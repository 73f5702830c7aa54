"""What can go wrong with a lease. It never leaves this package: the keeper counts it and goes on.

MembershipError       the lease could not be renewed; a retry can help
"""

from __future__ import annotations

from typing import ClassVar

from sync_runtime.errors import SyncError


class MembershipError(SyncError):
    """The lease could not be renewed this time."""

    retry_helps: ClassVar[bool] = True
