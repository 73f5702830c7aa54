"""Which store stands before a place, which keys of a Secret it needs, and how it is called. Pure: words and rules only.

The operator copies and checks by these rules before any sidecar tries the store; sidecars read the same keys as files.
Knows no store, no library and no cluster.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Final

from sync_runtime.contract.names import GroupKey
from sync_runtime.contract.sync import ObjectStore, Sync

GROUP_KEY: Final = "SYNCGROUP_STORE_KEY"
"""The group key that seals everything in a store, whatever kind of store it is."""
MAX_CREDENTIAL_BYTES: Final = 64 << 10
_PREFIX_DIGITS: Final = 16
_GROUP_KEY: Final = re.compile(rb"\s*[0-9a-fA-F]{64}\s*")

_PREFIXES: Final[Mapping[str, str]] = {
    "s3": "AWS_", "http": "AWS_", "https": "AWS_", "gs": "GOOGLE_", "az": "AZURE_",
}  # fmt: skip
_AWS: Final = (("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), ("AWS_SKIP_SIGNATURE",))
_GOOGLE: Final = (("GOOGLE_SERVICE_ACCOUNT_KEY",), ("GOOGLE_SKIP_SIGNATURE",))
_AZURE: Final = (
    ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT_KEY"),
    ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_SAS_KEY"),
    ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_CLIENT_ID", "AZURE_STORAGE_CLIENT_SECRET", "AZURE_STORAGE_TENANT_ID"),
    ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_SKIP_SIGNATURE"),
)
_NEEDED: Final[Mapping[str, tuple[tuple[str, ...], ...]]] = {"AWS_": _AWS, "GOOGLE_": _GOOGLE, "AZURE_": _AZURE}


def store_at(sync: Sync, cluster: str, region: str) -> ObjectStore | None:
    """The store that the members of a place follow; None: weights come over streams."""
    own = next((one for one in sync.regions if (one.cluster, one.region) == (cluster, region)), None)
    if own is None:
        return sync.object_store if sync.transport == "ObjectStore" else None
    return (own.object_store or sync.object_store) if own.transport == "ObjectStore" else None


def fed_stores(sync: Sync, group: GroupKey) -> list[ObjectStore]:
    """Every store that the trainer feeds, each once, the group's first."""
    named = [sync.object_store if sync.transport == "ObjectStore" else None]
    named += [store_at(sync, one.cluster, one.region) for one in sync.regions]
    found: dict[str, ObjectStore] = {}
    for store in named:
        if store is not None:
            found.setdefault(address_of(store, *group), store)
    return list(found.values())


def keys_prefix(sync: Sync, store: ObjectStore) -> str | None:
    """What stands before the store's keys where several Secrets share one copy; None: the group's own, or none."""
    own, ref = None if sync.object_store is None else sync.object_store.secret_ref, store.secret_ref
    return None if ref is None or ref == own else f"{hashlib.sha256(ref.name.encode()).hexdigest()[:_PREFIX_DIGITS]}."


def prefixed(prefix: str | None, keys: Iterable[str]) -> dict[str, str]:
    """Names in the copy by names in the Secret."""
    return {key: f"{prefix or ''}{key}" for key in keys}


def address_of(store: ObjectStore, namespace: str, name: str) -> str:
    """A store with the prefix of a group, for people: `s3://bucket/prefix`."""
    prefix = store.prefix or f"{namespace}/{name}"
    scheme, _, rest = store.url.partition("://")
    host, slash, path = rest.partition("/")
    host = host.rpartition("@")[2]  # whatever stands before it is nobody's business
    return f"{scheme}://{host}{slash}{path}".rstrip("/") + f"/{prefix}"


def used_keys(url: str, keys: Mapping[str, object]) -> tuple[str, ...]:
    """Those keys of a Secret that a store at this address reads: nothing else need leave its namespace."""
    prefix = _PREFIXES.get(_scheme(url))
    return tuple(
        sorted(key for key in keys if key == GROUP_KEY or (prefix is not None and key.upper().startswith(prefix)))
    )


def secret_problem(url: str, data: Mapping[str, bytes]) -> str | None:
    """What is wrong with the credentials for a store at this address, and what to do; None: nothing.

    A Secret with the group key alone is whole: the pods' own cloud identity opens the store.
    """
    for key in used_keys(url, data):
        if len(data[key]) > MAX_CREDENTIAL_BYTES:
            return f"{key} has {len(data[key])} bytes, which is too long for a credential: put the credential there"
    if GROUP_KEY in data and not _GROUP_KEY.fullmatch(data[GROUP_KEY]):
        return f"{GROUP_KEY} must be 64 hexadecimal digits: `openssl rand -hex 32` makes one"
    prefix = _PREFIXES.get(_scheme(url))
    if prefix is None:  # a folder has nothing to open it with
        return None if GROUP_KEY in data else f"a folder needs no credentials: give {GROUP_KEY}, or remove secretRef"
    held = {key.upper() for key, value in data.items() if value.strip()}
    ours = {key for key in held if key.startswith(prefix)}
    ways = _NEEDED[prefix]
    if any(set(way) <= held for way in ways) or (not ours and GROUP_KEY in data):
        return None
    signed = [way for way in ways if not way[-1].endswith("_SKIP_SIGNATURE")]
    nearest = max(signed, key=lambda way: len(set(way) & held))
    missing = ", ".join(key for key in nearest if key not in held)
    return f"it has no {missing}: add what {_scheme(url)}:// stores are opened with"


def _scheme(url: str) -> str:
    return url.partition("://")[0]
