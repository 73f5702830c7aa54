"""A relay that lies: a member of the group with a certificate of its own, and none of the trainer's secrets.

It has what a relay has (the trainer's objects, manifests and public certificate) and sends whatever a test wants of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from sync_runtime.bucket.keys import ObjectKey
from sync_runtime.bucket.stored import StoredObject
from sync_runtime.identity.files import read_folder
from sync_runtime.identity.names import MemberIdentity
from sync_runtime.identity.signing import SIGNED_PREFIX
from sync_runtime.identity.tls import server_context
from sync_runtime.session.shelf import offer
from sync_runtime.session.versions import Versions
from sync_runtime.transport.child import ChildLink
from sync_runtime.transport.events import ChildConnected, ChildGone, Event
from sync_runtime.transport.listener import Admission, Listener
from sync_runtime.transport.messages import Head, Hello, Index, LayoutDocument, Signer, Term


class Liar:
    """Buckets of an object, each with its true or its claimed hash."""

    def __init__(self, stored: StoredObject, damage: Callable[[bytes], bytes], *, claims_truth: bool) -> None:
        self._stored, self._damage, self._claims_truth = stored, damage, claims_truth

    def read(self, index: int) -> tuple[int, memoryview, bytes]:
        """A bucket; `claims_truth`: under the hash that the manifest names, which it does not have."""
        offset, data, sha256 = self._stored.read(index)
        changed = self._damage(bytes(data))
        return offset, memoryview(changed), sha256 if self._claims_truth else hashlib.sha256(changed).digest()


class HostileRelay:
    """Listens where the plan puts a relay; calls `attack` for every child that dials it."""

    def __init__(self, identity: Path, port: int, versions: Versions, attack: Callable[[HostileRelay], None]) -> None:
        self.identity, self.versions = identity, versions
        self.attacks = 0
        self.ends: list[str] = []
        """Why links to it ended."""
        self.welcomes_with: int | None = None
        """The term that WELCOME names; None: the true one."""
        self._attack = attack
        self._link: ChildLink | None = None
        self._listener = Listener(("127.0.0.1", port), lambda: server_context(identity), self, self._happened)

    def __enter__(self) -> HostileRelay:
        self._listener.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    @property
    def link(self) -> ChildLink:
        """The child that it attacks."""
        assert self._link is not None
        return self._link

    def admit(self, identity: MemberIdentity, hello: Hello) -> Admission:
        """Everyone is welcome."""
        fence = self.versions.fence
        return Admission("eu-0", self.welcomes_with or fence.term, fence.incarnation, 2)

    def own_signature(self, document: bytes, prefix: bytes = SIGNED_PREFIX) -> bytes:
        """By its own key: of the group's CA, but no trainer's."""
        key = load_pem_private_key((self.identity / "tls.key").read_bytes(), None)
        assert isinstance(key, Ed25519PrivateKey)
        return key.sign(prefix + document)

    @property
    def group_uid(self) -> str:
        """Of the group that it betrays."""
        return read_folder(self.identity).identity.group_uid

    def own_chain(self) -> str:
        """Its own certificate, as if it were a trainer's."""
        return (self.identity / "tls.crt").read_text()

    def prove(self) -> None:
        """TERM, as the trainer signed it: every relay has it."""
        proof = self.versions.fence.proof
        assert proof is not None
        self.link.send(Term(term=proof.term, incarnation=proof.incarnation, signature=proof.signature))

    def greet(self, chain: str, layout: bytes, rows: list[tuple[int, str]], newest: int) -> None:
        """SIGNER, INDEX, HEAD and the layout."""
        fence, head = self.versions.fence, self.versions.head
        assert head is not None
        assert fence.incarnation is not None
        self.link.send(Signer(certificates=chain))
        self.prove()
        names = {"lineage": head.lineage, "term": fence.term, "incarnation": fence.incarnation}
        self.link.send(Index.model_validate({**names, "start": None, "versions": rows}))
        digest = dict(rows)[newest]
        self.link.send(
            Head.model_validate(
                {**names, "seq": newest, "digest": digest, "step": None, "published_unix_ns": 0, "trace": ""}
            )
        )
        self.link.send(LayoutDocument(layout))

    def push(self, key: ObjectKey, stored: StoredObject, source: Liar | StoredObject, envelope: bytes) -> None:
        """A whole transfer, as a good relay would do it."""
        transfer = self.link.begin(offer(key, stored, self.versions), source)
        for index in range(stored.num_buckets):
            self.link.add_bucket(transfer, index)
        self.link.complete(transfer, envelope)

    def _happened(self, event: Event) -> None:
        if isinstance(event, ChildConnected):
            self._link = event.link
            self.attacks += 1
            self._attack(self)
        elif isinstance(event, ChildGone):
            self.ends.append(event.reason)
