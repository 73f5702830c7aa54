"""Why a TLS handshake failed, in our words: from OpenSSL's codes to the reasons that are counted and logged.

The codes are OpenSSL's, which the ssl module hands on by number (verification) or by name (everything else). A failure
that is not about who is who is a HandshakeError: the other end or the way broke, and dialling again may help.
"""

from __future__ import annotations

import ssl
from typing import Final

from sync_runtime.identity.errors import (
    BadChainError,
    BadNameError,
    ExpiredError,
    HandshakeError,
    IdentityError,
    NoIdentityError,
    NotTlsError,
    NotYetValidError,
    OldTlsError,
    RefusedByPeerError,
    UnknownCaError,
    WrongProtocolError,
    WrongUsageError,
)

# X509_V_ERR_… of OpenSSL: stable numbers, part of its interface.
_VERIFICATION: Final[dict[int, tuple[type[IdentityError], str]]] = {
    2: (UnknownCaError, "the other end's certificate was not signed by the group's CA"),
    7: (UnknownCaError, "the signature on the other end's certificate is not the group's CA's"),
    9: (NotYetValidError, "the other end's certificate has not begun: check the clocks"),
    10: (ExpiredError, "the other end's certificate has ended: it must be renewed"),
    18: (UnknownCaError, "the other end's certificate is signed by itself"),
    19: (UnknownCaError, "the other end's certificate comes from another CA"),
    20: (UnknownCaError, "the other end's certificate was not signed by the group's CA"),
    21: (UnknownCaError, "the other end's certificate was not signed by the group's CA"),
    24: (WrongUsageError, "the other end's certificate was signed by a member, not by the CA"),
    25: (WrongUsageError, "the other end's certificate was signed by a CA below the group's: there is none"),
    26: (WrongUsageError, "the other end's certificate is for another purpose"),
    34: (WrongUsageError, "the other end's certificate demands what is unknown here"),
    79: (WrongUsageError, "the other end's certificate was signed by a member, not by the CA"),
    84: (BadNameError, "the other end's certificate names nobody"),
    87: (BadNameError, "the other end's certificate names nobody"),
    88: (BadNameError, "the other end's certificate does not insist on its name"),
}
_REASONS: Final[dict[str, tuple[type[IdentityError], str]]] = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": (NoIdentityError, "the other end showed no certificate"),
    "UNSUPPORTED_PROTOCOL": (OldTlsError, "the other end offers no TLS 1.3"),
    "VERSION_TOO_LOW": (OldTlsError, "the other end offers no TLS 1.3"),
    "WRONG_SSL_VERSION": (OldTlsError, "the other end offers no TLS 1.3"),
    "TLSV1_ALERT_PROTOCOL_VERSION": (OldTlsError, "the other end refuses TLS 1.3"),
    "NO_APPLICATION_PROTOCOL": (WrongProtocolError, "the other end speaks another protocol inside TLS"),
    "TLSV1_ALERT_NO_APPLICATION_PROTOCOL": (WrongProtocolError, "the other end speaks another protocol inside TLS"),
    "WRONG_VERSION_NUMBER": (NotTlsError, "the other end does not speak TLS"),
    "HTTP_REQUEST": (NotTlsError, "the other end sent a plain HTTP request"),
    "HTTPS_PROXY_REQUEST": (NotTlsError, "the other end sent a plain HTTP request"),
    "BAD_PROTOCOL_VERSION_NUMBER": (NotTlsError, "the other end does not speak TLS"),
    "RECORD_LAYER_FAILURE": (NotTlsError, "the other end does not speak TLS"),
    "EXCESSIVE_MESSAGE_SIZE": (BadChainError, "the other end sent far too many certificates"),
}
_REFUSALS: Final = ("UNKNOWN_CA", "CERTIFICATE", "ACCESS_DENIED")
"""Parts of the names of alerts with which the other end turns our certificate down."""


def refusal_of(error: OSError) -> IdentityError:
    """The IdentityError for what a handshake raised, or, on the dialling side, the first read after it.

    The end that dials learns only there what the other end thinks of its certificate: TLS 1.3 lets it go on before.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        kind, sentence = _VERIFICATION.get(
            error.verify_code, (BadChainError, f"the other end's certificate is not acceptable: {error.verify_message}")
        )
        return kind(sentence)
    if isinstance(error, ssl.SSLError):
        name = error.reason or ""
        if name in _REASONS:
            kind, sentence = _REASONS[name]
            return kind(sentence)
        if "ALERT" in name and any(part in name for part in _REFUSALS):
            words = name.partition("ALERT_")[2].replace("_", " ").lower()
            return RefusedByPeerError(f"the other end does not accept our certificate: {words}")
        return HandshakeError(f"TLS failed: {name.replace('_', ' ').lower() or error}")
    return HandshakeError(f"the connection ended during the TLS handshake: {error.strerror or error}")
