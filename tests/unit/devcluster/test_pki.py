"""Keys and certificates: the chain holds, the names are right, nobody else can read the keys."""

from __future__ import annotations

import ipaddress
import socket
import ssl
import stat
import threading
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tools.devcluster import pki
from tools.devcluster.config import Region

CLIENTS = {
    "admin": ("devcluster-admin", "system:masters"),
    "apiserver-kubelet": ("kube-apiserver-kubelet-client", "system:masters"),
    "controller-manager": ("system:kube-controller-manager", None),
    "scheduler": ("system:kube-scheduler", None),
    "proxy": ("system:kube-proxy", None),
    "node": ("system:node:eu-west-node", "system:nodes"),
}
SERVERS = ("apiserver", "kubelet")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All files of one region."""
    path = tmp_path_factory.mktemp("region") / "pki"
    pki.write_region(path, Region("eu-west", 2))
    return path


def _certificate(folder: Path, name: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate((folder / f"{name}.crt").read_bytes())


@pytest.mark.parametrize("name", [*CLIENTS, *SERVERS])
def test_every_certificate_is_signed_by_the_region_and_names_the_key_that_signed_it(folder: Path, name: str) -> None:
    authority, leaf = _certificate(folder, "ca"), _certificate(folder, name)
    leaf.verify_directly_issued_by(authority)
    signer = leaf.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value
    subject = authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    assert signer.key_identifier == subject.digest


def test_two_regions_do_not_trust_each_other(folder: Path, tmp_path: Path) -> None:
    pki.write_region(tmp_path, Region("eu-west", 2))
    with pytest.raises(InvalidSignature):
        _certificate(folder, "admin").verify_directly_issued_by(_certificate(tmp_path, "ca"))


@pytest.mark.parametrize(("name", "who"), CLIENTS.items())
def test_clients_are_who_kubernetes_expects(folder: Path, name: str, who: tuple[str, str | None]) -> None:
    leaf = _certificate(folder, name)
    groups = [attribute.value for attribute in leaf.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]
    assert [attribute.value for attribute in leaf.subject.get_attributes_for_oid(NameOID.COMMON_NAME)] == [who[0]]
    assert groups == ([who[1]] if who[1] else [])
    usage = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.CLIENT_AUTH]


def test_the_api_server_answers_to_every_name_it_is_called_by(folder: Path) -> None:
    names = _certificate(folder, "apiserver").extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {"localhost", "kubernetes.default.svc"} <= set(names.get_values_for_type(x509.DNSName))
    addresses = {str(address) for address in names.get_values_for_type(x509.IPAddress)}
    assert addresses == {"127.0.0.1", "10.231.0.12", "10.230.0.12", "10.102.0.1"}


def test_the_kubelet_answers_to_its_node(folder: Path) -> None:
    names = _certificate(folder, "kubelet").extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["eu-west-node"]
    assert names.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address("10.231.0.12")]


def test_only_the_authority_may_sign(folder: Path) -> None:
    constraints = _certificate(folder, "ca").extensions.get_extension_for_class(x509.BasicConstraints)
    assert constraints.critical
    assert constraints.value.ca
    for name in (*CLIENTS, *SERVERS):
        with pytest.raises(x509.ExtensionNotFound):
            _certificate(folder, name).extensions.get_extension_for_class(x509.BasicConstraints)


def test_keys_are_for_their_owner_only(folder: Path) -> None:
    keys = sorted(folder.glob("*.key"))
    assert len(keys) == len(CLIENTS) + len(SERVERS) + 2
    assert {stat.S_IMODE(path.stat().st_mode) for path in keys} == {0o600}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_key_file_that_was_open_to_others_is_closed(tmp_path: Path) -> None:
    (tmp_path / "ca.key").touch(mode=0o644)
    pki.Authority(tmp_path)
    assert stat.S_IMODE((tmp_path / "ca.key").stat().st_mode) == 0o600


def test_the_token_key_pair_belongs_together(folder: Path) -> None:
    private = serialization.load_pem_private_key((folder / "service-accounts.key").read_bytes(), None)
    public = serialization.load_pem_public_key((folder / "service-accounts.pub").read_bytes())
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    assert private.public_key() == public


def test_a_strict_handshake_accepts_both_sides(folder: Path) -> None:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "apiserver.crt", folder / "apiserver.key")
    server.load_verify_locations(folder / "ca.crt")
    server.verify_mode = ssl.CERT_REQUIRED
    client = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    client.verify_flags |= ssl.VERIFY_X509_STRICT  # Python 3.13's default
    client.load_cert_chain(folder / "admin.crt", folder / "admin.key")
    near, far = socket.socketpair()
    peer: list[str] = []

    def serve() -> None:
        with server.wrap_socket(far, server_side=True) as stream:
            peer.append(str(stream.getpeercert()))
            stream.sendall(b"hello")

    thread = threading.Thread(target=serve)
    thread.start()
    with client.wrap_socket(near, server_hostname="127.0.0.1") as stream:
        assert stream.recv(5) == b"hello"
    thread.join()
    assert "devcluster-admin" in peer[0]
