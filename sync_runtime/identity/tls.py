"""TLS between members: TLS 1.3 only, certificates on both sides, host names unchecked, our application protocol.

Makes contexts, and tells who is at the other end of a finished handshake; `handshake` says why one failed. Opens no
socket. Whether a member may do what it asks for is decided elsewhere, from the name found here.
"""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from typing import Final

from sync_runtime.identity.certificates import MemberCertificate, read_der, read_member
from sync_runtime.identity.errors import NoIdentityError, WrongProtocolError
from sync_runtime.identity.files import IdentityFiles, read_folder
from sync_runtime.identity.keys import key_pem
from sync_runtime.identity.names import MemberIdentity

ALPN: Final = "syncgroup/1"


def server_context(folder: Path) -> ssl.SSLContext:
    """For the end that listens, from a member's folder; raises IdentityFilesError."""
    return make_server_context(read_folder(folder))


def client_context(folder: Path) -> ssl.SSLContext:
    """For the end that dials, from a member's folder; raises IdentityFilesError."""
    return make_client_context(read_folder(folder))


def make_server_context(files: IdentityFiles) -> ssl.SSLContext:
    """For the end that listens."""
    context = _context(ssl.PROTOCOL_TLS_SERVER, files)
    context.num_tickets = 0  # resumption would carry an identity past the end of its certificate
    return context


def make_client_context(files: IdentityFiles) -> ssl.SSLContext:
    """For the end that dials."""
    return _context(ssl.PROTOCOL_TLS_CLIENT, files)


def peer_certificate(connection: ssl.SSLSocket | ssl.SSLObject) -> MemberCertificate:
    """The certificate of the other end after the handshake, form checked; raises IdentityError.

    Chain, signature and times were checked by the handshake. The caller compares the name: `names.expect`.
    """
    protocol = connection.selected_alpn_protocol()
    if protocol != ALPN:  # Python's server goes on without one
        raise WrongProtocolError(f"the other end does not speak {ALPN}")
    der = connection.getpeercert(binary_form=True)
    if not der:
        raise NoIdentityError("the other end showed no certificate")
    return read_member(read_der(der))


def peer_identity(connection: ssl.SSLSocket | ssl.SSLObject) -> MemberIdentity:
    """Who is at the other end after the handshake; raises IdentityError."""
    return peer_certificate(connection).identity


def _context(kind: ssl._SSLMethod, files: IdentityFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(kind)
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # names are in the URI, checked after the handshake
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols([ALPN])
    context.load_verify_locations(cadata=files.ca_pem.decode("ascii"))
    _load_own(context, files)
    return context


def _load_own(context: ssl.SSLContext, files: IdentityFiles) -> None:
    """Give a context exactly the bytes that were checked.

    The ssl module takes files only, and those on disk may have been replaced since. So it gets one in memory: no second
    read, and no copy of the key on a disk.
    """
    descriptor = os.memfd_create("syncgroup-identity", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(files.certificate_pem + b"\n" + key_pem(files.key))
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
