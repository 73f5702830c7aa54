"""Keys and certificates of one region: a CA, the servers, one client per component. ECDSA P-256, one folder."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Iterable
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tools.devcluster.config import DNS_DOMAIN, Region

LIFETIME = datetime.timedelta(days=30)
API_NAMES = (
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    f"kubernetes.default.svc.{DNS_DOMAIN}",
)


class Authority:
    """The region's certificate authority, alive while the region's files are written."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._now = datetime.datetime.now(datetime.UTC) - datetime.timedelta(minutes=5)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "devcluster-ca")])
        usage = x509.KeyUsage(
            digital_signature=True,
            key_cert_sign=True,
            crl_sign=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        certificate = (
            self._builder(self._name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        self._write("ca", self._key, certificate)

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(self._now)
            .not_valid_after(self._now + LIFETIME)
        )

    def client(self, file: str, user: str, group: str | None = None) -> None:
        """A certificate with which `user` may talk to the API server."""
        self._leaf(file, user, group, ExtendedKeyUsageOID.CLIENT_AUTH, ())

    def server(self, file: str, user: str, group: str | None, names: Iterable[str]) -> None:
        """A certificate for a server reachable under `names` (host names and addresses)."""
        self._leaf(file, user, group, ExtendedKeyUsageOID.SERVER_AUTH, names)

    def _leaf(
        self, file: str, user: str, group: str | None, usage: x509.ObjectIdentifier, names: Iterable[str]
    ) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        attributes = [x509.NameAttribute(NameOID.COMMON_NAME, user)]
        if group:
            attributes.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, group))
        # Python 3.13 and later refuse a certificate that does not name the key it was signed with.
        signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = self._builder(x509.Name(attributes), key).add_extension(signer, critical=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        alternatives = [_general_name(name) for name in names]
        if alternatives:
            builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        self._write(file, key, builder.sign(self._key, hashes.SHA256()))

    def signing_pair(self, file: str) -> None:
        """A bare key pair: `file`.key signs service-account tokens, `file`.pub checks them."""
        key = ec.generate_private_key(ec.SECP256R1())
        self._write_key(file, key)
        public = key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        (self._folder / f"{file}.pub").write_bytes(public)

    def _write(self, file: str, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
        (self._folder / f"{file}.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        self._write_key(file, key)

    def _write_key(self, file: str, key: ec.EllipticCurvePrivateKey) -> None:
        path = self._folder / f"{file}.key"
        path.touch(mode=0o600)
        path.chmod(0o600)  # the file may have been there
        path.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def write_region(folder: Path, region: Region) -> None:
    """Every key and certificate of a region, real nodes included."""
    authority = Authority(folder)
    addresses = ("127.0.0.1", region.node_ip, region.management_ip, region.service_ip)
    authority.server("apiserver", "kube-apiserver", None, (*API_NAMES, *addresses))
    authority.client("admin", "devcluster-admin", "system:masters")
    authority.client("apiserver-kubelet", "kube-apiserver-kubelet-client", "system:masters")
    authority.client("controller-manager", "system:kube-controller-manager")
    authority.client("scheduler", "system:kube-scheduler")
    authority.client("proxy", "system:kube-proxy")
    authority.client("node", f"system:node:{region.node_name}", "system:nodes")
    authority.server("kubelet", f"system:node:{region.node_name}", "system:nodes", (region.node_name, region.node_ip))
    authority.signing_pair("service-accounts")
