"""Where a Jaeger query API answers with the trace of a version. Pure: words for a URL, no request."""

from __future__ import annotations

import json
from typing import Final
from urllib.parse import urlencode

from sync_runtime.contract import traces

LOOKBACK: Final = "48h"
MAX_ANSWERS: Final = 20
"""A version that was published again after its trainer died has two; the newest counts."""


def search_path(*, group_uid: str, seq: int | None = None, service: str = traces.RUNTIME_SERVICE) -> str:
    """Path and query for the traces of a group's versions, the newest ones; `seq` names one version."""
    tags = {traces.ATTR_GROUP_UID: group_uid}
    if seq is not None:
        tags[traces.ATTR_SEQ] = str(seq)
    words = {
        "service": service,
        "operation": traces.VERSION,
        "tags": json.dumps(tags),
        "lookback": LOOKBACK,
        "limit": str(MAX_ANSWERS),
    }
    return "/api/traces?" + urlencode(words)
