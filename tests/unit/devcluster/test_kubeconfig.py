"""kubeconfig files: complete in themselves, private, and readable by the client."""

from __future__ import annotations

import base64
import json
import stat
from pathlib import Path

import pytest
import yaml

from tools.devcluster import kubeconfig, pki
from tools.devcluster.api import ApiClient
from tools.devcluster.config import Region


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The keys of one region."""
    path = tmp_path_factory.mktemp("keys")
    pki.write_region(path, Region("eu-west", 2))
    return path


def test_a_certificate_is_carried_inside(keys: Path) -> None:
    text = kubeconfig.with_certificate(keys, name="eu-west", server="https://127.0.0.1:6443", user="scheduler")
    document = yaml.safe_load(text)
    cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
    assert cluster["server"] == "https://127.0.0.1:6443"
    assert base64.b64decode(cluster["certificate-authority-data"]) == (keys / "ca.crt").read_bytes()
    assert base64.b64decode(user["client-key-data"]) == (keys / "scheduler.key").read_bytes()
    assert document["current-context"] == document["contexts"][0]["name"] == "eu-west"


def test_a_token_stands_in_for_a_certificate(keys: Path) -> None:
    text = kubeconfig.with_token(keys, name="eu-west", server="https://10.231.0.12:6443", token="secret")
    assert json.loads(text)["users"][0]["user"] == {"token": "secret"}


def test_the_file_is_private_even_where_it_was_not(tmp_path: Path) -> None:
    fresh, old = tmp_path / "deep" / "fresh", tmp_path / "old"
    old.touch(mode=0o644)
    for path in (fresh, old):
        kubeconfig.write_private(path, "text")
        assert path.read_text() == "text"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("kind", ["certificate", "token"])
def test_our_own_client_reads_both_kinds(keys: Path, tmp_path: Path, kind: str) -> None:
    server = "https://127.0.0.1:1"
    text = (
        kubeconfig.with_certificate(keys, name="a", server=server, user="admin")
        if kind == "certificate"
        else kubeconfig.with_token(keys, name="a", server=server, token="t")
    )
    kubeconfig.write_private(tmp_path / "config", text)
    with pytest.raises(ConnectionRefusedError):
        ApiClient(tmp_path / "config").request("GET", "/")
