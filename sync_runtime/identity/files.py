"""A member's identity on disk: one folder with `ca.crt`, `tls.crt` and `tls.key`.

Files are replaced while members run: one by one with a rename, or all at once as Kubernetes does it (`..data`, a
symbolic link that is swapped). What is read here is one consistent set or an error; a half-replaced set is never used.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sync_runtime.contract.names import CA_CERTIFICATE_KEY
from sync_runtime.identity.certificates import (
    MAX_AUTHORITIES,
    MAX_BUNDLE_BYTES,
    MemberCertificate,
    check_issued,
    read_member,
    read_pem,
)
from sync_runtime.identity.errors import IdentityError, IdentityFilesError
from sync_runtime.identity.keys import read_key
from sync_runtime.identity.names import MemberIdentity

CA_FILE: Final = CA_CERTIFICATE_KEY
CERTIFICATE_FILE: Final = "tls.crt"
KEY_FILE: Final = "tls.key"
FILES: Final = (CA_FILE, CERTIFICATE_FILE, KEY_FILE)
KEY_MODE: Final = 0o600
PUBLIC_MODE: Final = 0o644

_KUBERNETES_LINK: Final = "..data"
_ATTEMPTS: Final = 3


@dataclass(frozen=True)
class IdentityFiles:
    """What a member's folder holds, checked against each other; times are not."""

    ca_pem: bytes
    authorities: tuple[x509.Certificate, ...]
    certificate_pem: bytes
    certificate: MemberCertificate
    key: Ed25519PrivateKey

    @property
    def identity(self) -> MemberIdentity:
        """Who this member is."""
        return self.certificate.identity


def read_folder(folder: Path) -> IdentityFiles:
    """The identity in a folder; raises IdentityFilesError."""
    for attempts_left in reversed(range(_ATTEMPTS)):
        try:
            ca_pem, certificate_pem, private_pem = _read_set(folder)
            break
        except FileNotFoundError as error:
            # The old set of a swapped link is deleted while it is being read: the next attempt finds the new one.
            if not attempts_left:
                raise IdentityFilesError(f"{error.filename} is missing: `syncgroup certs init` makes it") from error
        except OSError as error:
            raise IdentityFilesError(f"cannot read {error.filename}: {error.strerror}") from error
    try:
        return parse_files(ca_pem, certificate_pem, private_pem)
    except IdentityFilesError:
        raise
    except IdentityError as error:
        raise IdentityFilesError(f"the identity in {folder} cannot be used: {error}") from error


def parse_files(ca_pem: bytes, certificate_pem: bytes, private_pem: bytes) -> IdentityFiles:
    """The identity in three PEM texts; raises the IdentityError that says which one is wrong."""
    authorities = read_pem(ca_pem, CA_FILE, MAX_AUTHORITIES)
    (leaf,) = read_pem(certificate_pem, CERTIFICATE_FILE)
    key = read_key(private_pem)
    certificate = read_member(leaf)
    if certificate.public_key != key.public_key():
        raise IdentityFilesError(f"{KEY_FILE} is not the key of {CERTIFICATE_FILE}: they may be half replaced")
    check_issued(leaf, authorities)
    return IdentityFiles(ca_pem, authorities, certificate_pem, certificate, key)


def write_file(path: Path, data: bytes, *, mode: int, replace: bool) -> None:
    """Put a file in place whole or not at all; raises FileExistsError where it exists and must stay."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        # The mode is given at birth: there is no moment in which others can read a key.
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        if replace:
            draft.replace(path)
        else:
            os.link(draft, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            draft.unlink()


def state_of(folder: Path) -> tuple[tuple[int, ...] | None, ...]:
    """Changes whenever a file of the folder is replaced or rewritten; cheap enough for every handshake."""
    return tuple(_state_of(folder / name) for name in FILES)


def _state_of(path: Path) -> tuple[int, ...] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _read_set(folder: Path) -> tuple[bytes, bytes, bytes]:
    """All three files from one place, so that a swap between two reads cannot mix old and new."""
    link = folder / _KUBERNETES_LINK
    place = link.resolve() if link.is_symlink() else folder
    ca_pem, certificate_pem, private_pem = (_read(place / name) for name in FILES)
    return ca_pem, certificate_pem, private_pem


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(MAX_BUNDLE_BYTES + 1)  # one more than allowed: the parser then says so
