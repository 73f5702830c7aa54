"""What can go wrong in the operator, as sentences, each with the answer to "can a retry help?".

    OperatorError
    ├── ApiError                 an API server answered with an error, or not at all; `retry` says whether to try again
    │   ├── UnreachableError     no answer: refused, timed out, TLS; the cluster may be away
    │   ├── NotFoundError        404
    │   ├── ConflictError        409: somebody changed it since it was read, or holds the field
    │   ├── GoneError            410: the resource version is too old; list again
    │   ├── ThrottledError       429: asks us to wait
    │   ├── DeniedError          401, 403: the role does not allow it
    │   └── RefusedError         400, 422 and other answers that the same request will get again
    ├── AccessError              a kubeconfig that cannot or must not be used
    ├── StateError               the group's own record on the hub cannot be read
    └── AuthoritySecretError     the Secret of the group's CA is not as we left it

Knows nothing of HTTP clients: `kube` translates at that border.
"""

from __future__ import annotations


class OperatorError(Exception):
    """Anything the operator itself reports."""

    retry = True


class ApiError(OperatorError):
    """An API server answered with an error, or not at all."""

    def __init__(self, message: str, *, status: int = 0, cluster: str = "", retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.cluster = cluster
        self.retry_after_s = retry_after_s


class UnreachableError(ApiError):
    """No answer at all: the cluster may be away, or only the way to it."""


class NotFoundError(ApiError):
    """The object is not there."""


class ConflictError(ApiError):
    """The object was changed since it was read, or another manager owns the field."""


class GoneError(ApiError):
    """The resource version is no longer known; only a new list helps."""


class ThrottledError(ApiError):
    """The server asks us to come later."""


class DeniedError(ApiError):
    """The operator's role does not allow this; somebody must grant it."""


class RefusedError(ApiError):
    """The server will refuse the same request again."""

    retry = False


class AccessError(OperatorError):
    """A kubeconfig cannot or must not be used. Only a changed Secret helps."""

    retry = False


class StateError(OperatorError):
    """The group's own record on the hub cannot be read: a newer operator wrote it, or somebody edited it."""

    retry = False


class AuthoritySecretError(OperatorError):
    """The Secret of the group's CA is not as we left it. A new CA would cut every member off, so none is made."""

    retry = False
