"""Private keys of members and of the CA: Ed25519, PEM, never encrypted and never leaving their folder.

One kind of key for TLS and for signatures on manifests, so that there is nothing to negotiate and nothing to get wrong.
"""

from __future__ import annotations

from typing import Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sync_runtime.identity.errors import WrongKeyError

MAX_KEY_BYTES: Final = 16 * 1024


def make_key() -> Ed25519PrivateKey:
    """A new key."""
    return Ed25519PrivateKey.generate()


def key_pem(key: Ed25519PrivateKey) -> bytes:
    """The key as PEM (PKCS #8); whoever stores it keeps it to itself."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def read_key(pem: bytes) -> Ed25519PrivateKey:
    """The key in a PEM; raises WrongKeyError."""
    if len(pem) > MAX_KEY_BYTES:
        raise WrongKeyError(f"a private key has at most {MAX_KEY_BYTES} bytes, not {len(pem)}")
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except TypeError as error:
        raise WrongKeyError("the private key is encrypted: a sidecar has nobody to ask for the password") from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise WrongKeyError("these bytes are no private key in PEM") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise WrongKeyError("the private key is not an Ed25519 key: members have no other kind")
    return key
