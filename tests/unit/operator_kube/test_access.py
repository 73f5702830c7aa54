"""A kubeconfig is hostile until it is checked."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from syncgroup_operator.errors import AccessError
from syncgroup_operator.kube.access import MAX_KUBECONFIG_BYTES, InCluster, KubeconfigFile, from_kubeconfig
from tools.devcluster.pki import Authority


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pki")
    authority = Authority(folder)
    authority.client("me", "me")
    authority.client("other", "other")
    return folder


def encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def document(pki: Path, *, user: Any = None, **cluster: Any) -> dict[str, Any]:
    entry = {"server": "https://api.example:6443", "certificate-authority-data": encoded(pki / "ca.crt")} | cluster
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": entry}],
        "users": [{"name": "u", "user": {"token": "secret-token"} if user is None else user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }


def refused(data: Any) -> str:
    with pytest.raises(AccessError) as caught:
        from_kubeconfig(data if isinstance(data, bytes | str) else json.dumps(data))
    assert "secret-token" not in str(caught.value)
    assert not caught.value.retry
    return str(caught.value)


def test_a_token_kubeconfig_is_accepted_as_yaml_and_as_json(pki: Path) -> None:
    for text in (json.dumps(document(pki)), yaml.safe_dump(document(pki)).encode()):
        access = from_kubeconfig(text)
        assert (access.server, access.token) == ("https://api.example:6443", "secret-token")
        configuration = access.client().configuration
        assert configuration.api_key == {"BearerToken": "Bearer secret-token"}
        assert configuration.verify_ssl


def test_a_client_certificate_is_loaded_and_leaves_no_file(pki: Path) -> None:
    user = {"client-certificate-data": encoded(pki / "me.crt"), "client-key-data": encoded(pki / "me.key")}
    client = from_kubeconfig(json.dumps(document(pki, user=user))).client()
    assert not Path(str(client.configuration.key_file)).exists()
    assert client.rest_client.ssl_context.check_hostname


def test_secrets_are_not_printed(pki: Path) -> None:
    assert "secret-token" not in repr(from_kubeconfig(json.dumps(document(pki))))


@pytest.mark.parametrize(
    ("entry", "value", "remedy"),
    [
        ("exec", {"command": "sh"}, "service account"),
        ("auth-provider", {"name": "gcp"}, "service account"),
        ("client-certificate", "/etc/passwd", "--flatten"),
        ("client-key", "/etc/passwd", "--flatten"),
        ("tokenFile", "/etc/passwd", "token itself"),
        ("username", "admin", "service account"),
        ("as", "admin", "service account"),
        ("something-new", "x", "remove it"),
    ],
)
def test_what_runs_programs_reads_files_or_acts_as_others_is_refused(
    pki: Path, entry: str, value: Any, remedy: str
) -> None:
    message = refused(document(pki, user={"token": "secret-token", entry: value}))
    assert f"users[u].user.{entry}" in message
    assert remedy in message


@pytest.mark.parametrize(
    ("entry", "value"),
    [("certificate-authority", "/etc/ca.crt"), ("insecure-skip-tls-verify", True), ("something-new", 1)],
)
def test_a_cluster_entry_that_weakens_tls_or_reads_files_is_refused(pki: Path, entry: str, value: Any) -> None:
    assert f"clusters[c].cluster.{entry}" in refused(document(pki, **{entry: value}))


def test_verification_that_is_switched_on_explicitly_is_fine(pki: Path) -> None:
    assert from_kubeconfig(json.dumps(document(pki, **{"insecure-skip-tls-verify": False}))).server


@pytest.mark.parametrize(
    "server",
    [
        "http://api.example:6443",
        "api.example",
        "",
        "https://",
        "https://me:you@api.example",
        "https://api.example?x=1",
        "https://api.example:port",
        "https://a b",
        "file:///etc/passwd",
        17,
    ],
)
def test_only_plain_https_addresses_are_accepted(pki: Path, server: Any) -> None:
    assert "server" in refused(document(pki, server=server))


def test_a_broken_certificate_is_refused_at_once(pki: Path) -> None:
    assert "PEM" in refused(document(pki, **{"certificate-authority-data": base64.b64encode(b"no pem").decode()}))
    assert "base64" in refused(document(pki, **{"certificate-authority-data": "%%%"}))
    mixed = {"client-certificate-data": encoded(pki / "me.crt"), "client-key-data": encoded(pki / "other.key")}
    assert "belongs together" in refused(document(pki, user=mixed))


def test_half_a_certificate_and_no_credentials_are_refused(pki: Path) -> None:
    assert "both or neither" in refused(document(pki, user={"client-key-data": encoded(pki / "me.key")}))
    assert "neither a token" in refused(document(pki, user={}))
    assert "no token" in refused(document(pki, user={"token": "a\nX-Evil: 1"}))


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xfe",
        "a: [",
        "[1, 2]",
        "",
        "null",
        "[" * 5000,
        "x: " + "9" * 5000,
        "a: &a [1]\nb: *a",
        "!!python/object/apply:os.system ['true']",
        "apiVersion: v1",
        "current-context: x",
        "current-context: x\ncontexts: 3",
        "current-context: x\ncontexts: [1, {name: x}]",
        "current-context: x\ncontexts: [{name: x, context: {}}]",
        "current-context: x\ncontexts: [{name: x, context: {cluster: c}}, {name: x, context: {}}]",
    ],
)
def test_damaged_text_is_refused_with_a_sentence(data: bytes | str) -> None:
    assert refused(data)


def test_a_large_one_is_refused_before_it_is_read() -> None:
    assert "bytes" in refused(b"#" * (MAX_KUBECONFIG_BYTES + 1))


def test_merges_of_aliases_cannot_blow_up() -> None:
    lines = ["a0: &a0 {x: 1}"]
    lines += [f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}" for n in range(1, 12)]
    assert "aliases" in refused("\n".join(lines))


def test_outside_a_pod_the_answer_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(AccessError, match="name a kubeconfig"):
        asyncio.run(InCluster().open())


def test_a_kubeconfig_by_path_is_read_as_kubectl_would(pki: Path, tmp_path: Path) -> None:
    path = tmp_path / "config"
    files = {"client-certificate": str(pki / "me.crt"), "client-key": str(pki / "me.key")}
    path.write_text(json.dumps(document(pki, user=files)))
    client = asyncio.run(KubeconfigFile(path).open())
    assert client.configuration.host == "https://api.example:6443"
    for text in ("[1]", "{", ""):
        path.write_text(text)
        with pytest.raises(AccessError, match="cannot be used"):
            asyncio.run(KubeconfigFile(path).open())
    with pytest.raises(AccessError, match="not there"):
        asyncio.run(KubeconfigFile(tmp_path / "none").open())
