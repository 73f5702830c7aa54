"""A group of two with certificates, and one TLS connection between them in memory: can this installation do it?

Opens no socket and writes no file. For self-tests of images; nothing else calls it.
"""

from __future__ import annotations

import datetime
import ssl
from typing import Final

from sync_runtime.contract.selftest import SelfTestError
from sync_runtime.identity.ca import Authority, make_ca, make_request, sign_request
from sync_runtime.identity.errors import IdentityError
from sync_runtime.identity.files import IdentityFiles, parse_files
from sync_runtime.identity.keys import key_pem, make_key
from sync_runtime.identity.names import MemberIdentity
from sync_runtime.identity.tls import make_client_context, make_server_context, peer_identity

GROUP_UID: Final = "00000000-0000-4000-8000-000000000000"
LIFETIME: Final = datetime.timedelta(hours=1)
GREETING: Final = b"the same bits everywhere"
_MAX_FLIGHTS: Final = 10


def tls_sentence(now: datetime.datetime) -> str:
    """Lets two members talk and says how it went; raises SelfTestError."""
    try:
        met, met_by, read = _converse(now)
    except (IdentityError, ssl.SSLError) as error:
        raise SelfTestError(f"two members could not talk: {error}") from error
    if read != GREETING:
        raise SelfTestError("the connection gave other bytes than were sent.")
    return f"{met_by.member} met {met.member} over {ssl.OPENSSL_VERSION}, with certificates of their own group."


def _converse(now: datetime.datetime) -> tuple[MemberIdentity, MemberIdentity, bytes]:
    """Whom the rollout met, whom the trainer met, and what the trainer read."""
    authority = make_ca(GROUP_UID, now=now, lifetime=LIFETIME)
    trainer = _member(authority, MemberIdentity(GROUP_UID, "trainer", "here", "trainer-0"), now)
    rollout = _member(authority, MemberIdentity(GROUP_UID, "rollout", "there", "rollout-0"), now)
    to_trainer, to_rollout = ssl.MemoryBIO(), ssl.MemoryBIO()
    listening = make_server_context(trainer).wrap_bio(to_trainer, to_rollout, server_side=True)
    dialling = make_client_context(rollout).wrap_bio(to_rollout, to_trainer)
    _shake_hands(dialling, listening)
    dialling.write(GREETING)
    return peer_identity(dialling), peer_identity(listening), listening.read()


def _member(authority: Authority, identity: MemberIdentity, now: datetime.datetime) -> IdentityFiles:
    key = make_key()
    certificate = sign_request(authority, make_request(identity, key), identity, now=now, lifetime=LIFETIME)
    return parse_files(authority.certificate_pem, certificate, key_pem(key))


def _shake_hands(*ends: ssl.SSLObject) -> None:
    waiting = list(ends)
    for _ in range(_MAX_FLIGHTS):
        waiting = [end for end in waiting if not _is_done(end)]
        if not waiting:
            return
    raise ssl.SSLError("the handshake did not come to an end")


def _is_done(end: ssl.SSLObject) -> bool:
    try:
        end.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True
