"""The proof of a term: what a trainer signs when it takes one, and how a member judges it. PROTOCOL.md, section 1.

Pure but for the clock it is given. Knows no spool and no sockets; what a proved term keeps out is for `versions`.
"""

from __future__ import annotations

import datetime

from sync_runtime.errors import SignatureError
from sync_runtime.identity.errors import BadSignatureError, IdentityError
from sync_runtime.identity.signing import TERM_PREFIX, Signer, TrustedSigners
from sync_runtime.session.versions import Fence, Proof


def term_document(group_uid: str, term: int, incarnation: str) -> bytes:
    """What is signed, behind the prefix."""
    return b"\0".join(word.encode() for word in (group_uid, str(term), incarnation))


def prove(signer: Signer, group_uid: str, term: int, incarnation: str) -> Proof:
    """The trainer's own word for its term."""
    return Proof(term, incarnation, signer.sign(term_document(group_uid, term, incarnation), TERM_PREFIX).hex())


def check_proof(proof: Proof, fence: Fence, signers: TrustedSigners, group_uid: str, now: datetime.datetime) -> None:
    """Raises SignatureError where no trainer signed it, and IdentityError where it came too late to prove a new term.

    What is known already stays known when the certificate under it ends.
    """
    document = term_document(group_uid, proof.term, proof.incarnation)
    try:
        signers.verify(document, bytes.fromhex(proof.signature), now, TERM_PREFIX)
    except BadSignatureError as error:
        raise SignatureError(f"term {proof.term} is not signed by a trainer: {error}") from error
    except IdentityError:
        if (proof.term, proof.incarnation) != (fence.term, fence.incarnation):
            raise
