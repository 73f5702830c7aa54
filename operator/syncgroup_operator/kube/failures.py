"""Every wrong answer of an API server as one of the operator's errors: the border beyond which nobody sees HTTP.

Pure. The message is the server's own, cut, with the cluster and what was asked before it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from syncgroup_operator.errors import (
    ApiError,
    ConflictError,
    DeniedError,
    GoneError,
    NotFoundError,
    RefusedError,
    ThrottledError,
    UnreachableError,
)

MAX_MESSAGE_CHARACTERS: Final = 1000
_BY_STATUS: Final[Mapping[int, type[ApiError]]] = {
    401: DeniedError,
    403: DeniedError,
    404: NotFoundError,
    409: ConflictError,
    410: GoneError,
    429: ThrottledError,
}
_RETRIED_CLIENT_ERRORS: Final = frozenset({408, 425})


def error_type(status: int) -> type[ApiError]:
    """Which error a status code is."""
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    if 400 <= status < 500 and status not in _RETRIED_CLIENT_ERRORS:
        return RefusedError
    return ApiError  # the server's own trouble; it may pass


def error_of(
    cluster: str, what: str, status: int, answer: Mapping[str, Any], retry_after: str | None = None
) -> ApiError:
    """The error for an answer that is none of 2xx. `what` is the verb and the path."""
    said = answer.get("message")
    message = said if isinstance(said, str) and said else "no reason given"
    text = f"cluster {cluster}: {what}: {status}: {message[:MAX_MESSAGE_CHARACTERS]}"
    after_s = retry_after_s(retry_after)
    if after_s is None:
        after_s = _details_retry_s(answer)
    return error_type(status)(text, status=status, cluster=cluster, retry_after_s=after_s)


def unreachable(cluster: str, what: str, error: BaseException) -> UnreachableError:
    """The error for no answer at all."""
    said = (str(error) or type(error).__name__)[:MAX_MESSAGE_CHARACTERS]
    return UnreachableError(f"cluster {cluster}: {what}: no answer: {said}", cluster=cluster)


def retry_after_s(header: str | None) -> float | None:
    """The header Retry-After in seconds; API servers never send a date in it."""
    if header is None:
        return None
    try:
        seconds = float(header)
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and seconds >= 0 else None


def _details_retry_s(answer: Mapping[str, Any]) -> float | None:
    details = answer.get("details")
    seconds = details.get("retryAfterSeconds") if isinstance(details, dict) else None
    return float(seconds) if isinstance(seconds, int) and 0 < seconds < 86_400 else None
