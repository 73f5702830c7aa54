"""Why a certificate, key, connection or signature is refused: one class per reason, one code per class.

    IdentityError
    ├── NoIdentityError          NoIdentity       the other end showed no certificate
    ├── BadNameError             BadName          its certificate does not carry one name in our grammar
    ├── WrongGroupError          WrongGroup       a name, but of another group
    ├── WrongRoleError           WrongRole        a role that must not do this
    ├── WrongMemberError         WrongMember      another member than was asked for
    ├── ExpiredError             Expired
    ├── NotYetValidError         NotYetValid      from the future: a clock is wrong
    ├── UnknownCaError           UnknownCa        signed by somebody else
    ├── WrongUsageError          WrongUsage       a certificate for another purpose, or a CA posing as a member
    ├── WrongKeyError            WrongKey         not Ed25519, or not the key of the certificate
    ├── BadChainError            BadChain         malformed, too large, too long
    ├── BadSignatureError        BadSignature     no trusted trainer signed this document
    ├── NotTlsError              NotTls           plain TCP
    ├── OldTlsError              OldTls           older than TLS 1.3
    ├── WrongProtocolError       WrongProtocol    TLS, but not our application protocol
    ├── RefusedByPeerError       RefusedByPeer    the other end does not accept our certificate
    ├── HandshakeError           HandshakeFailed  TLS ended otherwise; the other end or the way may have broken
    ├── AuthorityError           BadAuthority     what should sign is no CA of ours
    └── IdentityFilesError       BadFiles         our own files are missing, unreadable or contradict each other

`reason` is what is counted, logged and reported; the message is a sentence for whoever reads the log. The tree stands
apart from `sync_runtime.errors`, since that reaches processes without cryptography.
"""

from __future__ import annotations

from typing import ClassVar


class IdentityError(Exception):
    """Refused. The message is a sentence."""

    reason: ClassVar[str] = "Refused"
    retry_helps: ClassVar[bool] = False
    """Whether the same attempt can succeed later without anybody changing a certificate."""


class NoIdentityError(IdentityError):
    """The other end showed no certificate."""

    reason = "NoIdentity"


class BadNameError(IdentityError):
    """A certificate, request or argument does not carry exactly one name in the grammar of PROTOCOL.md."""

    reason = "BadName"


class WrongGroupError(IdentityError):
    """Of another group."""

    reason = "WrongGroup"


class WrongRoleError(IdentityError):
    """A trainer where a rollout must be, or the other way round."""

    reason = "WrongRole"


class WrongMemberError(IdentityError):
    """Another member than was expected."""

    reason = "WrongMember"


class ExpiredError(IdentityError):
    """The certificate has ended."""

    reason = "Expired"


class NotYetValidError(IdentityError):
    """The certificate has not begun."""

    reason = "NotYetValid"
    retry_helps = True  # clocks get mended, and time passes


class UnknownCaError(IdentityError):
    """No CA of the group signed it."""

    reason = "UnknownCa"


class WrongUsageError(IdentityError):
    """Made for something else."""

    reason = "WrongUsage"


class WrongKeyError(IdentityError):
    """Another kind of key than Ed25519, or not the one that belongs here."""

    reason = "WrongKey"


class BadChainError(IdentityError):
    """Bytes that are no certificates, or too many of them."""

    reason = "BadChain"


class BadSignatureError(IdentityError):
    """No trusted trainer signed the document."""

    reason = "BadSignature"


class NotTlsError(IdentityError):
    """The other end does not speak TLS."""

    reason = "NotTls"


class OldTlsError(IdentityError):
    """The other end offers no TLS 1.3."""

    reason = "OldTls"


class WrongProtocolError(IdentityError):
    """TLS without our application protocol."""

    reason = "WrongProtocol"


class RefusedByPeerError(IdentityError):
    """The other end ended the handshake because of our certificate."""

    reason = "RefusedByPeer"


class HandshakeError(IdentityError):
    """The handshake ended for a reason that has nothing to do with who is who."""

    reason = "HandshakeFailed"
    retry_helps = True


class AuthorityError(IdentityError):
    """A certificate or key that cannot act as the group's CA."""

    reason = "BadAuthority"


class IdentityFilesError(IdentityError):
    """The member's own files are not usable."""

    reason = "BadFiles"
    retry_helps = True  # files are replaced while we run
