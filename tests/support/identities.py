"""Groups with a CA and member folders for tests, and certificates that our CA would never sign."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509.oid import ExtendedKeyUsageOID

from sync_runtime.identity.ca import Authority, make_ca, make_request, sign_request
from sync_runtime.identity.certificates import to_pem
from sync_runtime.identity.files import CA_FILE, CERTIFICATE_FILE, KEY_FILE, KEY_MODE, PUBLIC_MODE, write_file
from sync_runtime.identity.keys import key_pem, make_key
from sync_runtime.identity.names import MemberIdentity, Role

GROUP_UID = "2b1f9c5e-0a53-4d7c-9a3b-6a0f5f8a1c11"
DAY = datetime.timedelta(days=1)


def now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC).replace(microsecond=0)


class Group:
    """A CA with members' folders under one folder."""

    def __init__(self, folder: Path, group_uid: str = GROUP_UID, authority: Authority | None = None) -> None:
        self.folder = folder
        self.group_uid = group_uid
        self.authority = authority or make_ca(group_uid, now=now(), lifetime=30 * DAY)

    def identity(self, member: str, role: Role = "rollout", region: str = "eu-west") -> MemberIdentity:
        return MemberIdentity(self.group_uid, role, region, member)

    def trainer(self, member: str = "trainer-0", **options: Any) -> Path:
        return self.member(member, "trainer", "us-east", **options)

    def member(
        self,
        member: str,
        role: Role = "rollout",
        region: str = "eu-west",
        *,
        at: datetime.datetime | None = None,
        lifetime: datetime.timedelta = DAY,
        key: Ed25519PrivateKey | None = None,
    ) -> Path:
        """The folder of a member, made or renewed in place."""
        key = key or make_key()
        identity = self.identity(member, role, region)
        certificate = sign_request(
            self.authority, make_request(identity, key), identity, now=at or now(), lifetime=lifetime
        )
        return self.write(member, certificate, key_pem(key))

    def write(self, name: str, certificate_pem: bytes, private_pem: bytes) -> Path:
        folder = self.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        write_file(folder / CA_FILE, self.authority.certificate_pem, mode=PUBLIC_MODE, replace=True)
        write_file(folder / CERTIFICATE_FILE, certificate_pem, mode=PUBLIC_MODE, replace=True)
        write_file(folder / KEY_FILE, private_pem, mode=KEY_MODE, replace=True)
        return folder


def odd_certificate(
    authority: Authority,
    key: Ed25519PrivateKey | ec.EllipticCurvePrivateKey,
    *,
    names: list[x509.GeneralName] | None = None,
    purposes: list[x509.ObjectIdentifier] | None = None,
    is_ca: bool = False,
    begins: datetime.timedelta = -DAY,
    ends: datetime.timedelta = DAY,
    signer: Ed25519PrivateKey | None = None,
    further: list[x509.ExtensionType] | None = None,
    critical: bool = False,
) -> bytes:
    """A certificate as a careless or stolen CA might sign it; by default a good one of a rollout."""
    uri = MemberIdentity(authority.group_uid, "rollout", "eu-west", "odd").uri()
    purposes = purposes or [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
    title = [x509.NameAttribute(x509.NameOID.COMMON_NAME, authority.group_uid)]  # a CA must have a subject
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name(title if is_ca else []))
        .issuer_name(authority.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now() + begins)
        .not_valid_after(now() + ends)
        .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
        .add_extension(key_usage(is_ca), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key()), critical=False)
    )
    names = [x509.UniformResourceIdentifier(uri)] if names is None else names
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=True)
    for extension in further or []:
        builder = builder.add_extension(extension, critical=critical)
    return to_pem(builder.sign(signer or authority.key, None))


def elliptic_certificate(authority: Authority) -> tuple[bytes, ec.EllipticCurvePrivateKey]:
    """A good certificate, but for a key on another curve."""
    key = ec.generate_private_key(ec.SECP256R1())
    return odd_certificate(authority, key), key


def elliptic_request(identity: MemberIdentity) -> bytes:
    """A certificate request for a key on another curve."""
    key = ec.generate_private_key(ec.SECP256R1())
    names = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(identity.uri())])
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).add_extension(names, critical=True)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def key_usage(is_ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=is_ca,
        crl_sign=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
