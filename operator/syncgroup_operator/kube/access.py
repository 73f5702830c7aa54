"""Who we are on an API server and how we know it: from kubeconfig bytes or a pod's own token to a client.

A kubeconfig in a Secret is hostile: whoever may write it must not make the operator run a program, read a file of its
own container, talk without TLS or act as somebody else. Only entries that are known to be harmless pass; each refusal
names the entry and the remedy. A kubeconfig that is named by its path is its owner's own and may do what kubectl may.

Key material goes to disk only while OpenSSL reads it, since it cannot read memory.
"""

from __future__ import annotations

import base64
import binascii
import os
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

import aiohttp
import yaml
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.config import ConfigException, load_incluster_config, load_kube_config

from syncgroup_operator.errors import AccessError, UnreachableError

MAX_KUBECONFIG_BYTES: Final = 64 * 1024
USER_AGENT: Final = "syncgroup-operator"
_TOKEN: Final = "BearerToken"  # noqa: S105 what the client calls its place for a token

_INSTEAD: Final = "; use a service account's token (`syncgroup cluster register` makes such a kubeconfig)"
_EMBED: Final = "; embed it (`kubectl config view --raw --flatten`)"
_REFUSED_USER: Final = {
    "exec": "runs a program" + _INSTEAD,
    "auth-provider": "runs a plug-in" + _INSTEAD,
    "client-certificate": "is a file of another machine" + _EMBED,
    "client-key": "is a file of another machine" + _EMBED,
    "tokenFile": "is a file of another machine; put the token itself under `token`",
    "username": "asks for a password, which API servers no longer take" + _INSTEAD,
    "password": "asks for a password, which API servers no longer take" + _INSTEAD,
    **dict.fromkeys(("as", "as-uid", "as-groups", "as-user-extra"), "acts as somebody else" + _INSTEAD),
}
_REFUSED_CLUSTER: Final = {
    "certificate-authority": "is a file of another machine" + _EMBED,
    "insecure-skip-tls-verify": "lets anybody pose as the API server; give certificate-authority-data instead",
}
_USER_KEYS: Final = frozenset({"token", "client-certificate-data", "client-key-data", "extensions"})
_CLUSTER_KEYS: Final = frozenset(
    {"server", "certificate-authority-data", "tls-server-name", "proxy-url", "disable-compression", "extensions"}
)


class Access(Protocol):
    """A way to a cluster."""

    async def open(self) -> ApiClient:
        """A client; raises AccessError."""

    async def renew(self, client: ApiClient) -> bool:
        """The server did not know us, or we did not know it: read again who we are and whom we trust.

        Whether whom we trust has changed: only another client will know.
        """


@dataclass(frozen=True, slots=True)
class Kubeconfig:
    """A kubeconfig that passed every check. What is secret is never printed."""

    server: str
    authority: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    certificate: bytes | None = field(default=None, repr=False)
    key: bytes | None = field(default=None, repr=False)
    tls_server_name: str | None = None
    proxy_url: str | None = field(default=None, repr=False)

    async def open(self) -> ApiClient:
        """A client of this API server."""
        return self.client()

    async def renew(self, client: ApiClient) -> bool:
        """Nothing to read again: a changed Secret is another Kubeconfig."""
        return False

    def client(self) -> ApiClient:
        """A client; raises AccessError where TLS cannot use what the kubeconfig holds."""
        configuration = Configuration(
            host=self.server,
            ca_cert_data=self.authority,
            tls_server_name=self.tls_server_name,
            proxy=self.proxy_url,
            api_key={_TOKEN: f"Bearer {self.token}"} if self.token else None,
        )
        try:
            with tempfile.TemporaryDirectory(prefix="syncgroup-") as folder:  # private to this user
                if self.certificate and self.key:
                    for name, data in (("certificate", self.certificate), ("key", self.key)):
                        Path(folder, name).write_bytes(data)
                    configuration.cert_file = str(Path(folder, "certificate"))
                    configuration.key_file = str(Path(folder, "key"))
                return _client(configuration)
        except (ssl.SSLError, ValueError) as error:
            raise AccessError(
                "the kubeconfig's certificates cannot be used: certificate-authority-data, client-certificate-data and "
                f"client-key-data must be PEM that belongs together ({_first_line(error)})"
            ) from error


@dataclass(frozen=True, slots=True)
class InCluster:
    """The pod's own service account; the kubelet renews its files.

    The client reads the token again each minute, the authority when a server cannot be verified.
    """

    async def open(self) -> ApiClient:
        """A client of the API server of the cluster that this pod runs in."""
        configuration = Configuration()
        try:
            load_incluster_config(configuration)  # type: ignore[no-untyped-call]
            _note_authority(configuration)
            return _client(configuration)
        except (ConfigException, OSError, ValueError) as error:
            raise AccessError(
                f"this process has no service account of a cluster ({_first_line(error)}); "
                "outside a pod, name a kubeconfig"
            ) from error

    async def renew(self, client: ApiClient) -> bool:
        """Read the token again at the next request, not within the minute, and the authority."""
        load_incluster_config(client.configuration)  # type: ignore[no-untyped-call]
        return _authority_changed(client)


@dataclass(frozen=True, slots=True)
class KubeconfigFile:
    """A kubeconfig of the person who started this process; its plug-ins and files are theirs."""

    path: Path
    """Or several, as KUBECONFIG names them: the first that says something wins."""
    context: str | None = None
    """None: the file's current one."""

    async def open(self) -> ApiClient:
        """A client for that context."""
        configuration = Configuration()
        await self._load(configuration)
        _note_authority(configuration)
        return _client(configuration)

    async def renew(self, client: ApiClient) -> bool:
        """A plug-in's token ran out: ask for another one. The file may name another authority by now."""
        await self._load(client.configuration)
        return _authority_changed(client)

    async def _load(self, configuration: Configuration) -> None:
        if not self._exists():
            raise AccessError(f"the kubeconfig {self.path} is not there")
        try:
            await load_kube_config(  # type: ignore[no-untyped-call]
                str(self.path), context=self.context, client_configuration=configuration, persist_config=False
            )
        except (ConfigException, OSError, ValueError, TypeError, AttributeError, yaml.YAMLError) as error:
            raise AccessError(f"the kubeconfig {self.path} cannot be used: {_first_line(error)}") from error

    def _exists(self) -> bool:
        return any(Path(one).is_file() for one in str(self.path).split(os.pathsep))


def from_kubeconfig(data: bytes | str) -> Kubeconfig:
    """A kubeconfig's bytes, checked; raises AccessError with the entry and the remedy."""
    document = _mapping(_parsed(data), "the kubeconfig")
    context_name = document.get("current-context")
    if not isinstance(context_name, str) or not context_name:
        raise AccessError("the kubeconfig has no current-context; set it with `kubectl config use-context NAME`")
    context = _named(document, "contexts", "context", context_name)
    cluster_name, user_name = context.get("cluster"), context.get("user")
    cluster = _named(document, "clusters", "cluster", cluster_name)
    user = _named(document, "users", "user", user_name)
    _check_keys(cluster, f"clusters[{cluster_name}].cluster", _CLUSTER_KEYS, _REFUSED_CLUSTER)
    _check_keys(user, f"users[{user_name}].user", _USER_KEYS, _REFUSED_USER)
    checked = _checked(cluster, user, f"clusters[{cluster_name}].cluster", f"users[{user_name}].user")
    checked.client()  # certificates that TLS refuses are better refused now
    return checked


def _checked(cluster: Mapping[str, Any], user: Mapping[str, Any], cluster_at: str, user_at: str) -> Kubeconfig:
    authority = _embedded(cluster, "certificate-authority-data", cluster_at)
    certificate = _embedded(user, "client-certificate-data", user_at)
    key = _embedded(user, "client-key-data", user_at)
    token = _text(user, "token", user_at)
    if (certificate is None) != (key is None):
        raise AccessError(f"{user_at} has one of client-certificate-data and client-key-data; give both or neither")
    if token is None and certificate is None:
        raise AccessError(f"{user_at} has neither a token nor a client certificate; give one of them")
    if token is not None and not (token.isascii() and token.isprintable() and " " not in token):
        raise AccessError(f"{user_at}.token is no token; it must be one line without spaces")
    try:
        authority_pem = authority.decode("ascii") if authority is not None else None
    except UnicodeDecodeError as error:
        raise AccessError(f"{cluster_at}.certificate-authority-data is not PEM inside base64") from error
    return Kubeconfig(
        server=_server(cluster, cluster_at),
        authority=authority_pem,
        token=token,
        certificate=certificate,
        key=key,
        tls_server_name=_text(cluster, "tls-server-name", cluster_at),
        proxy_url=_proxy(cluster, cluster_at),
    )


class _PlainLoader(yaml.SafeLoader):
    """YAML without aliases: merges of aliases grow without bound."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise AccessError("the kubeconfig uses YAML aliases; write each entry out")
        return super().compose_node(parent, index)


def _parsed(data: bytes | str) -> Any:
    if len(data) > MAX_KUBECONFIG_BYTES:
        raise AccessError(f"the kubeconfig has {len(data)} bytes; {MAX_KUBECONFIG_BYTES} are allowed for one cluster")
    try:
        text = data.decode() if isinstance(data, bytes) else data
        return yaml.load(text, _PlainLoader)  # noqa: S506 a SafeLoader
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        # Not quoted: what cannot be parsed may still be a secret.
        raise AccessError("the kubeconfig is not YAML in UTF-8; check the Secret's key") from error


def _mapping(value: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise AccessError(f"{what} must be a mapping; check the Secret's key")
    return value


def _named(document: Mapping[str, Any], section: str, key: str, name: object) -> Mapping[str, Any]:
    """The one entry of a section with this name."""
    entries = document.get(section)
    if not isinstance(entries, list):
        raise AccessError(f"the kubeconfig's {section} must be a list")
    found = [entry for entry in entries if isinstance(entry, dict) and entry.get("name") == name]
    if not isinstance(name, str) or len(found) != 1:
        raise AccessError(f"the kubeconfig's {section} must have exactly one entry named {name!r}, not {len(found)}")
    return _mapping(found[0].get(key), f"{section}[{name}].{key}")


def _check_keys(entry: Mapping[str, Any], at: str, allowed: frozenset[str], refused: Mapping[str, str]) -> None:
    for key, value in entry.items():
        if key == "insecure-skip-tls-verify" and value is False:
            continue
        if key in refused:
            raise AccessError(f"{at}.{key} is refused: it {refused[key]}")
        if key not in allowed:
            raise AccessError(f"{at}.{key} is refused: it is not known to be harmless; remove it")


def _text(entry: Mapping[str, Any], key: str, at: str) -> str | None:
    value = entry.get(key)
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise AccessError(f"{at}.{key} must be text")
    return value


def _embedded(entry: Mapping[str, Any], key: str, at: str) -> bytes | None:
    text = _text(entry, key, at)
    if text is None:
        return None
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise AccessError(f"{at}.{key} is not base64") from error


def _server(cluster: Mapping[str, Any], at: str) -> str:
    text = _text(cluster, "server", at) or ""
    try:
        parts = urlsplit(text)
        parts.port  # noqa: B018 raises for a wrong one
    except ValueError as error:
        raise AccessError(f"{at}.server is no address") from error
    if parts.scheme != "https" or not parts.hostname:
        raise AccessError(f"{at}.server must start with https:// and name a host")
    if parts.username or parts.password or parts.query or parts.fragment or not text.isprintable() or " " in text:
        raise AccessError(f"{at}.server must be an address alone: no user, no query, no spaces")
    return text.rstrip("/")


def _proxy(cluster: Mapping[str, Any], at: str) -> str | None:
    text = _text(cluster, "proxy-url", at)
    if text is not None and not text.startswith(("http://", "https://")):
        raise AccessError(f"{at}.proxy-url must start with http:// or https://")
    return text


def _note_authority(configuration: Configuration) -> None:
    """Keep what is trusted now: the file that it comes from may change."""
    if configuration.ssl_ca_cert:
        configuration.ca_cert_data = Path(configuration.ssl_ca_cert).read_text(encoding="utf-8")


def _authority_changed(client: ApiClient) -> bool:
    path = client.configuration.ssl_ca_cert
    return bool(path) and Path(path).read_text(encoding="utf-8") != client.configuration.ca_cert_data


def _client(configuration: Configuration) -> ApiClient:
    async def refuse(_session: object, _context: object, seen: aiohttp.TraceRequestRedirectParams) -> None:
        seen.response.close()
        raise UnreachableError("the API server sends us elsewhere, which none does; check the address")

    # A remote server must not be able to send the hub's operator to addresses inside the hub.
    trace = aiohttp.TraceConfig()
    trace.on_request_redirect.append(refuse)
    configuration.trace_configs = [trace]
    configuration.connection_pool_maxsize = 0  # watches are long; `limits` bounds the rest
    client = ApiClient(configuration)
    client.user_agent = USER_AGENT
    return client


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:200]
