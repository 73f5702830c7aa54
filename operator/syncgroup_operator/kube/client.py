"""One cluster as the operator uses it: every verb, by kind and name, on plain JSON documents.

Writes are of three sorts. `apply` is for everything that the operator owns: the server merges, two equal applies are
one. `replace` is the compare-and-swap: it carries the resource version that was read. `delete` carries the uid, so that
a successor of the same name is never hit.

Nothing here retries: errors say whether that can help, and whoever acts knows what has become stale meanwhile.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from sync_runtime.contract.names import FIELD_MANAGER, STATUS_FIELD_MANAGER
from syncgroup_operator.errors import GoneError, NotFoundError, RefusedError
from syncgroup_operator.kube.access import Access
from syncgroup_operator.kube.connection import APPLY_PATCH, MERGE_PATCH, Connection, Stream
from syncgroup_operator.kube.kinds import Kind, kind_of, path_of
from syncgroup_operator.kube.limits import ClientLimits

Document = dict[str, Any]
Propagation = Literal["Background", "Foreground", "Orphan"]
MAX_LIST_RESTARTS: Final = 5
"""Of one list whose pages expire between each other; more often than this means a server in trouble."""


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a list."""

    items: tuple[Document, ...]
    resource_version: str
    """Of the whole list: a watch goes on from here."""
    first: bool
    """The list begins here. It may begin again: forget what came before."""
    last: bool


class Cluster:
    """A client of one cluster's API server."""

    def __init__(
        self,
        name: str,
        access: Access,
        limits: ClientLimits | None = None,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self._connection = Connection(name, access, limits or ClientLimits(), clock_s)

    @property
    def requests(self) -> Counter[tuple[str, str, int]]:
        """How many requests were made, by verb, kind and status code (0: no answer)."""
        return self._connection.requests

    async def close(self) -> None:
        """Close every connection; watches end with an error."""
        await self._connection.close()

    # --- reading ------------------------------------------------------------------------------------------------------

    async def get(self, kind: Kind, namespace: str, name: str) -> Document:
        """One object; NotFoundError where there is none."""
        return await self._connection.request("get", kind.kind, "GET", kind.path(namespace, name))

    async def pages(
        self, kind: Kind, namespace: str = "", *, label_selector: str = "", field_selector: str = ""
    ) -> AsyncIterator[Page]:
        """A list, page by page. Where the server forgot it in the middle, it begins again (`Page.first`)."""
        query = _selected(label_selector, field_selector)
        query["limit"] = str(self._connection.limits.page_size)
        path = kind.path(namespace)
        restarts, token = 0, ""
        while True:
            begins = not token
            try:
                answer = await self._connection.request(
                    "list", kind.kind, "GET", path, query=query | ({"continue": token} if token else {})
                )
            except GoneError:
                restarts += 1
                if begins or restarts > MAX_LIST_RESTARTS:
                    raise
                token = ""
                continue
            token, page = _page(kind, answer, first=begins)
            yield page
            if page.last:
                return

    async def list_all(
        self, kind: Kind, namespace: str = "", *, label_selector: str = "", field_selector: str = ""
    ) -> list[Document]:
        """All objects at once: for short lists."""
        found: list[Document] = []
        pages = self.pages(kind, namespace, label_selector=label_selector, field_selector=field_selector)
        async for page in pages:
            if page.first:
                found.clear()
            found.extend(page.items)
        return found

    def watch_stream(
        self,
        kind: Kind,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        resource_version: str,
        timeout_s: int,
        answer_timeout_s: float,
    ) -> contextlib.AbstractAsyncContextManager[Stream]:
        """The raw lines of one watch; `watch.Watch` makes sense of them."""
        query = _selected(label_selector, field_selector) | {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(timeout_s),
        }
        path = kind.path(namespace)
        return self._connection.stream(kind.kind, path, query, answer_timeout_s=answer_timeout_s)

    async def version(self) -> Document:
        """What the API server says about its own version."""
        return await self._connection.request("get", "version", "GET", "/version")

    async def has_api(self, group_version: str) -> bool:
        """Whether the server serves an API group in this version."""
        try:
            await self._connection.request("get", "discovery", "GET", f"/apis/{group_version}")
        except NotFoundError:
            return False
        return True

    async def healthz(self) -> None:
        """Return when the API server says that it is ready; raises ApiError."""
        await self._connection.request("get", "readyz", "GET", "/readyz")

    # --- writing ------------------------------------------------------------------------------------------------------

    async def apply(
        self,
        document: Mapping[str, Any],
        *,
        manager: str = FIELD_MANAGER,
        force: bool = True,
        subresource: str = "",
        news: bool = False,
    ) -> Document:
        """Server-side apply: the object has at least these fields, and they are ours."""
        query = {"fieldManager": manager, "force": "true" if force else "false"}
        path, kind = path_of(document, subresource), kind_of(document)
        return await self._connection.request(
            "apply", kind.kind, "PATCH", path, query=query, body=document, content_type=APPLY_PATCH, news=news
        )

    async def patch_status(self, document: Mapping[str, Any]) -> Document:
        """Server-side apply of `status` alone, with the manager that owns it."""
        return await self.apply(document, manager=STATUS_FIELD_MANAGER, subresource="status", news=True)

    async def create(
        self, document: Mapping[str, Any], *, manager: str = FIELD_MANAGER, news: bool = False
    ) -> Document:
        """Create; ConflictError where the name is taken."""
        kind = kind_of(document)
        path = kind.path((document.get("metadata") or {}).get("namespace") or "")
        return await self._connection.request(
            "create", kind.kind, "POST", path, query={"fieldManager": manager}, body=document, news=news
        )

    async def replace(
        self, document: Mapping[str, Any], *, manager: str = FIELD_MANAGER, subresource: str = ""
    ) -> Document:
        """Compare-and-swap by `metadata.resourceVersion`; ConflictError where somebody was faster."""
        path, kind = path_of(document, subresource), kind_of(document)
        if not document["metadata"].get("resourceVersion"):
            raise RefusedError(
                f"replacing {path} needs the resourceVersion that was read; without it, it would clobber"
            )
        return await self._connection.request(
            "replace", kind.kind, "PUT", path, query={"fieldManager": manager}, body=document
        )

    async def merge_patch(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        patch: Mapping[str, Any],
        *,
        manager: str = FIELD_MANAGER,
        subresource: str = "",
        news: bool = False,
    ) -> Document:
        """A JSON merge patch: for single fields of objects that are not ours."""
        return await self._connection.request(
            "patch",
            kind.kind,
            "PATCH",
            kind.path(namespace, name, subresource),
            query={"fieldManager": manager},
            body=patch,
            content_type=MERGE_PATCH,
            news=news,
        )

    async def delete(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        *,
        uid: str,
        resource_version: str | None = None,
        grace_s: int | None = None,
        propagation: Propagation = "Background",
    ) -> None:
        """Delete exactly this incarnation; ConflictError where another one has the name, NotFoundError where none."""
        if not uid:
            raise RefusedError(f"deleting {kind.path(namespace, name)} needs its uid; a namesake would be hit")
        preconditions = {"uid": uid} | ({"resourceVersion": resource_version} if resource_version else {})
        body: Document = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": preconditions,
            "propagationPolicy": propagation,
        }
        if grace_s is not None:
            body["gracePeriodSeconds"] = grace_s
        await self._connection.request("delete", kind.kind, "DELETE", kind.path(namespace, name), body=body)


def _selected(label_selector: str, field_selector: str) -> dict[str, str]:
    selectors = {"labelSelector": label_selector, "fieldSelector": field_selector}
    return {name: text for name, text in selectors.items() if text}


def _page(kind: Kind, answer: Mapping[str, Any], *, first: bool) -> tuple[str, Page]:
    """One page and the token of the next. Servers leave kind and version out of a list's items."""
    metadata, items = answer.get("metadata"), answer.get("items")
    if not isinstance(metadata, dict) or not (items is None or isinstance(items, list)):
        raise RefusedError(f"the list of {kind.plural} is malformed")
    found = tuple(item for item in items or () if isinstance(item, dict))
    for item in found:
        item.setdefault("apiVersion", kind.api_version)
        item.setdefault("kind", kind.kind)
    token = metadata.get("continue")
    token = token if isinstance(token, str) else ""
    return token, Page(found, str(metadata.get("resourceVersion", "")), first=first, last=not token)
