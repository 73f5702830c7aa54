"""One HTTPS connection to an API server: enough to wait for things and to test with, no client library needed."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tools.errors import ClusterError

JSON = "application/json"
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"


class ApiClient:
    """Talks to the API server of a kubeconfig; keeps its connection open. Not for several threads."""

    def __init__(self, kubeconfig: Path, timeout_s: float = 15.0) -> None:
        document = json.loads(kubeconfig.read_text())
        cluster = document["clusters"][0]["cluster"]
        user = document["users"][0]["user"]
        address = urlsplit(cluster["server"])
        self._host, self._port = address.hostname or "127.0.0.1", address.port or 443
        self._timeout_s = timeout_s
        self._headers = {"Accept": JSON}
        self._context = ssl.create_default_context(
            cadata=base64.b64decode(cluster["certificate-authority-data"]).decode()
        )
        if "token" in user:
            self._headers["Authorization"] = f"Bearer {user['token']}"
        else:
            _load_certificate(self._context, user)
        self._connection: http.client.HTTPSConnection | None = None

    def _open(self, timeout_s: float | None = None) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(
            self._host, self._port, context=self._context, timeout=timeout_s or self._timeout_s
        )

    def request(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, content_type: str = JSON
    ) -> tuple[int, dict[str, Any]]:
        """One request; the answer's status code and JSON. A connection that went stale is opened once more."""
        payload = json.dumps(body).encode() if body is not None else None
        headers = self._headers | ({"Content-Type": content_type} if payload is not None else {})
        reused = self._connection is not None
        try:
            return self._exchange(method, path, payload, headers)
        except (OSError, http.client.HTTPException):
            self.close()
            if not reused:
                raise
        return self._exchange(method, path, payload, headers)

    def _exchange(
        self, method: str, path: str, payload: bytes | None, headers: dict[str, str]
    ) -> tuple[int, dict[str, Any]]:
        self._connection = self._connection or self._open()
        try:
            self._connection.request(method, path, payload, headers)
            response = self._connection.getresponse()
            text = response.read()
        except (OSError, http.client.HTTPException):
            self.close()
            raise
        try:
            answer = json.loads(text) if text else {}
        except ValueError:
            answer = {"message": text.decode(errors="replace")}
        return response.status, answer if isinstance(answer, dict) else {"value": answer}

    def watch(self, path: str) -> Iterator[dict[str, Any]]:
        """Events of a watch, until the server ends it."""
        connection = self._open(timeout_s=3600)
        try:
            connection.request("GET", path, headers=self._headers)
            response = connection.getresponse()
            while line := response.readline():
                yield json.loads(line)
        finally:
            connection.close()

    def must(self, method: str, path: str, body: Mapping[str, Any] | None = None, **options: str) -> dict[str, Any]:
        """Like `request`, but an answer other than 2xx is an error with the server's own words."""
        status, answer = self.request(method, path, body, **options)
        if not 200 <= status < 300:
            raise ClusterError(f"{method} {path} was answered {status}: {answer.get('message', answer)}")
        return answer

    def close(self) -> None:
        """Drop the connection; the next request opens a new one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _load_certificate(context: ssl.SSLContext, user: Mapping[str, str]) -> None:
    # ssl reads certificates from files only; these live as long as the call.
    with tempfile.NamedTemporaryFile() as chain, tempfile.NamedTemporaryFile() as key:
        chain.write(base64.b64decode(user["client-certificate-data"]))
        key.write(base64.b64decode(user["client-key-data"]))
        chain.flush()
        key.flush()
        context.load_cert_chain(chain.name, key.name)


def wait_until(check: Callable[[], bool], what: str, timeout_s: float, every_s: float = 0.1) -> None:
    """Ask until it is so. A refused connection means not yet."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            if check():
                return
        except (OSError, http.client.HTTPException):
            pass
        if time.monotonic() > deadline:
            raise ClusterError(f"{what} did not happen within {timeout_s:.0f} s.")
        time.sleep(every_s)
