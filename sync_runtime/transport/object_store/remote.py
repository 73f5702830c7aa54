"""A store that is reached over HTTP: S3 and all that speak it, Google Cloud Storage, Azure.

The one module that knows obstore. Its own retries are off: `patience` asks again, and knows what may be asked twice.
Credentials are files, as a mounted Secret has them, and are read again when the store refuses them.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    NotModifiedError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import S3Store, from_url

from sync_runtime.errors import SettingsError
from sync_runtime.transport.object_store.errors import (
    StoreClockError,
    StoreConflictError,
    StoreDamagedError,
    StoreDeniedError,
    StoreError,
    StoreMissingError,
)
from sync_runtime.transport.object_store.names import LATEST
from sync_runtime.transport.object_store.ports import Fetched
from sync_runtime.transport.object_store.seal import GROUP_KEY_NAME

if TYPE_CHECKING:
    from obstore.store import ObjectStore

T = TypeVar("T")
_SCHEMES: Final = ("s3", "gs", "az", "http", "https")
_MAX_CREDENTIAL_BYTES: Final = 64 << 10
_CLOCK_SIGNS: Final = ("RequestTimeTooSkewed", "RequestExpired")
_CODE: Final = re.compile(r"<Code>(\w{1,64})</Code>")
_STRANGERS: Final = ("InvalidAccessKeyId", "XAdminUserNotFound", "ResourceNotFound")
"""The last is Azure's word for an account that is not there, or that shows us nothing; a missing blob is another."""
_NO_BUCKETS: Final = ("NoSuchBucket", "ContainerNotFound")
_ENDPOINTS: Final = ("azure_storage_endpoint", "azure_endpoint", "google_base_url")
"""Settings that name a server instead of the cloud's own; whoever writes http:// there means it."""
_NO_RETRIES: Final = {"max_retries": 0, "retry_timeout": timedelta(seconds=1)}
_FOR_EVER: Final = {"Cache-Control": "public, max-age=31536000, immutable"}
_NEVER: Final = {"Cache-Control": "no-cache"}


def read_credentials(folder: Path | None, keys: str = "") -> dict[str, str]:
    """The files of a Secret as settings of the library, such as AWS_ACCESS_KEY_ID; empty: the pod's own identity.

    Where several stores share a folder, the names of one store's files begin with its `keys`, which end in a dot.
    """
    if folder is None:
        return {}
    try:
        files = {path.name.removeprefix(keys): path for path in folder.iterdir() if path.name.startswith(keys)}
        ours = {name: path for name, path in sorted(files.items()) if "." not in name and path.is_file()}
        found = {name: path.read_bytes() for name, path in ours.items()}
    except OSError as error:
        raise StoreDeniedError(f"the store's credentials in {folder} cannot be read: {error.strerror}") from error
    for name, value in found.items():
        if len(value) > _MAX_CREDENTIAL_BYTES:
            raise SettingsError(f"{folder}/{keys}{name} is too large for a credential")
    try:
        return {name.lower(): value.decode().strip() for name, value in found.items() if name != GROUP_KEY_NAME}
    except UnicodeDecodeError as error:
        raise SettingsError(f"a credential in {folder} is not text") from error


class RemoteStore:
    """A bucket or container, below a prefix. Thread-safe."""

    def __init__(
        self,
        url: str,
        prefix: str,
        credentials: Path | None = None,
        *,
        keys: str = "",
        timeout_s: float = 60.0,
        connect_s: float = 5.0,
    ) -> None:
        self._url = url
        self._prefix = prefix.strip("/")
        self._credentials, self._keys = credentials, keys
        self._client: dict[str, Any] = {
            "timeout": timedelta(seconds=timeout_s),
            "connect_timeout": timedelta(seconds=connect_s),
        }
        self._lock = threading.Lock()
        self._settings = read_credentials(credentials, keys)
        self._store = self._opened(self._settings)
        self._keeps_attributes = True

    def get(self, key: str, limit_bytes: int) -> Fetched:
        """Reads a key."""
        found = self.get_if_changed(key, None, limit_bytes)
        if found is None:
            raise StoreError(f"the store says that {key} has not changed, and was not asked that")
        return found

    def get_if_changed(self, key: str, tag: str | None, limit_bytes: int) -> Fetched | None:
        """Reads a key on condition: an unchanged one costs no body."""
        options: Any = {} if tag is None else {"if_none_match": _known_as(tag).get("e_tag")}

        def act(store: ObjectStore) -> Fetched | None:
            try:
                found = obstore.get(store, self._path(key), options=options)
            except NotModifiedError:
                return None
            if found.meta["size"] > limit_bytes:
                raise StoreDamagedError(f"{key} has {found.meta['size']} bytes in the store; {limit_bytes} are allowed")
            return Fetched(memoryview(found.bytes()), _tag(found.meta))

        return self._do(key, act)

    def put(self, key: str, data: bytes | memoryview) -> None:
        """Puts in one request: a bucket is never large enough for a multipart upload, which could stay half done."""
        self._do(
            key, lambda store: obstore.put(store, self._path(key), data, attributes=_FOR_EVER, use_multipart=False)
        )

    def swap(self, key: str, data: bytes, tag: str | None) -> str:
        """Puts on condition, once."""
        mode: Any = "create" if tag is None else _known_as(tag)
        attributes = _NEVER if key == LATEST else _FOR_EVER
        put = self._do(key, lambda store: obstore.put(store, self._path(key), data, attributes=attributes, mode=mode))
        return _tag(put)

    def remove(self, keys: Iterable[str]) -> None:
        """Removes in bulk where the store can."""
        paths = [self._path(key) for key in keys]

        def act(store: ObjectStore) -> None:
            try:
                obstore.delete(store, paths)
            except FileNotFoundError:
                for path in paths:  # some stores name one that is not there, and leave the others
                    _delete_one(store, path)

        if paths:
            self._do(f"{len(paths)} keys", act)

    def list(self, prefix: str) -> Iterator[str]:
        """All keys below a folder."""
        skip = len(self._path(""))

        def act(store: ObjectStore) -> list[str]:
            found = obstore.list(store, self._path(prefix).rstrip("/"))
            return [meta["path"][skip:] for part in found for meta in part]

        return iter(self._do(prefix, act))

    def _path(self, key: str) -> str:
        return f"{self._prefix}/{key}" if self._prefix else key

    def _do(self, what: str, act: Callable[[ObjectStore], T]) -> T:
        """Once, and once more with credentials that are new since."""
        store = self._store
        try:
            with _translated(what):
                return act(store)
        except StoreDeniedError:
            if not self._renewed(store):
                raise
        with _translated(what):
            return act(self._store)

    def _renewed(self, refused: ObjectStore) -> bool:
        """Whether there are other credentials by now than those that were refused."""
        with self._lock:
            if self._store is not refused:
                return True
            settings = read_credentials(self._credentials, self._keys)
            if settings == self._settings:
                return False
            self._settings, self._store = settings, self._opened(settings)
            return True

    def _opened(self, settings: Mapping[str, str]) -> ObjectStore:
        parts = urlsplit(self._url)
        if parts.scheme not in _SCHEMES:
            raise SettingsError(f"{self._url} is no address of a store: s3://, gs://, az:// or https://host/bucket")
        config: Any = dict(settings)
        endpoints = (self._url, *(settings.get(name, "") for name in _ENDPOINTS))
        client = {**self._client, "allow_http": any(one.startswith("http://") for one in endpoints)}
        options: Any = {"client_options": client, "retry_config": _NO_RETRIES}
        try:
            if parts.scheme in {"http", "https"}:
                bucket, _, inner = parts.path.strip("/").partition("/")
                return S3Store(
                    bucket,
                    prefix=inner or None,
                    endpoint=f"{parts.scheme}://{parts.netloc}",
                    virtual_hosted_style_request=False,
                    config=config,
                    **options,
                )
            return from_url(self._url, config=config, **options)
        except (BaseError, ValueError) as error:
            raise SettingsError(
                f"the store {self._url} cannot be opened with its Secret: {_first_line(error)}"
            ) from error


def _delete_one(store: ObjectStore, path: str) -> None:
    try:
        obstore.delete(store, path)
    except FileNotFoundError:
        return


@contextmanager
def _translated(what: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise _missing(error, what) from error
    except (AlreadyExistsError, PreconditionError) as error:
        raise StoreConflictError(f"{what} is not what it was when it was read") from error
    except (PermissionDeniedError, UnauthenticatedError) as error:
        if any(sign in str(error) for sign in _CLOCK_SIGNS):
            raise StoreClockError(
                "the store does not believe this machine's clock: set it, or start a time service"
            ) from error
        raise StoreDeniedError(f"the store does not let us at {what}: {_first_line(error)}") from error
    except (BaseError, OSError) as error:
        raise StoreError(f"the store is away, or asks us to wait, at {what}: {_first_line(error)}") from error


def _missing(error: FileNotFoundError, what: str) -> StoreError:
    """What a store means by 404. Taken for an empty prefix, an unknown user or bucket would never be told of."""
    found = _CODE.search(str(error))
    code = "" if found is None else found[1]
    if code in _STRANGERS:
        return StoreDeniedError(f"the store does not know our account or access key, at {what}: correct the Secret")
    if code in _NO_BUCKETS:
        return StoreError(f"the bucket does not exist, at {what}: create it, or correct the store's address")
    return StoreMissingError(f"there is no {what} in the store")


def _tag(meta: Mapping[str, Any]) -> str:
    """Both names that a store may know a state by: S3 and Azure compare the first, Google's the second."""
    return f"{meta.get('e_tag') or ''}\n{meta.get('version') or ''}"


def _known_as(tag: str) -> dict[str, str]:
    e_tag, _, version = tag.partition("\n")
    return {name: value for name, value in (("e_tag", e_tag), ("version", version)) if value}


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or ["no reason given"])[0][:300]
