"""A member's session towards its parent, over a real spool and recorded links; what it says is what tests read."""

from __future__ import annotations

import hashlib
from pathlib import Path

from sync_runtime.bucket.keys import ObjectKey, VersionRef
from sync_runtime.bucket.spool import Spool, StoredObject
from sync_runtime.identity.files import read_folder
from sync_runtime.identity.signing import Signer, TrustedSigners
from sync_runtime.session.incoming import MemberContext
from sync_runtime.session.receive import ReceiverSession
from sync_runtime.session.relay import Distributor
from sync_runtime.session.shelf import Supply
from sync_runtime.session.terms import prove
from sync_runtime.session.versions import Versions
from sync_runtime.transport.messages import Begin, Head, Index, Message, Term
from tests.support.identities import GROUP_UID

A, ME, LAYOUT = "a" * 32, "d" * 32, "c" * 64


def digest(seq: int) -> str:
    return f"{seq:032x}"


class Parent:
    """A link that writes down what it is told."""

    name = "trainer-0"

    def __init__(self) -> None:
        self.said: list[Message] = []
        self.closed: list[str] = []

    def send(self, message: Message) -> None:
        self.said.append(message)

    def finish(self, transfer: int) -> None:
        """Nothing to do."""

    def close(self, reason: str, message: str, *, retry: bool = True) -> None:
        self.closed.append(reason)

    def heard(self, kind: type[Message]) -> list[Message]:
        return [message for message in self.said if isinstance(message, kind)]


class Engine:
    """An engine that holds what a test says."""

    def __init__(self) -> None:
        self.version: VersionRef | None = VersionRef(A, 0)
        self.left_behind: VersionRef | None = None
        """What it runs where no delta leads on from that."""
        self.refused: set[ObjectKey] = set()
        self.lost: list[ObjectKey] = []
        self.mending: dict[ObjectKey, list[list[int]]] = {}

    @property
    def live(self) -> VersionRef | None:
        return self.version or self.left_behind

    def holds(self) -> VersionRef | None:
        return self.version

    def digest(self) -> str | None:
        return None

    def out_of_service(self) -> bool:
        return self.version is None

    def learned(self) -> None:
        """Nothing to do."""

    def arrived(self, stored: StoredObject) -> None:
        """Nothing to do."""

    def no_way(self, key: ObjectKey) -> None:
        self.lost.append(key)

    def repairs(self) -> dict[ObjectKey, list[list[int]]]:
        return self.mending


def term(trainer: Path, number: int, incarnation: str = ME) -> Term:
    """The word of the trainer with this folder for its term."""
    proof = prove(Signer.of(read_folder(trainer)), GROUP_UID, number, incarnation)
    return Term(term=proof.term, incarnation=proof.incarnation, signature=proof.signature)


class Scene:
    """A session, its spool and its engine; term 1 is its trainer's."""

    def __init__(self, folder: Path, trainer: Path) -> None:
        self.trainer = trainer
        self.spool = Spool.open(folder, max_bytes=1 << 30, max_versions=100)
        self.versions, self.engine, self.parent = Versions(), Engine(), Parent()
        self.versions.fence.admit(1, ME)
        self.signers = TrustedSigners((trainer / "ca.crt").read_bytes(), GROUP_UID)
        self.signers.add((trainer / "tls.crt").read_bytes())
        supply = Supply(stored=self.spool.stored, layout=self.spool.layout, request=lambda key, blocks: None)
        self.distributor = Distributor(self.versions, supply)
        self.session = ReceiverSession(
            MemberContext(
                spool=self.spool,
                versions=self.versions,
                distributor=self.distributor,
                signers=self.signers,
                group_uid=GROUP_UID,
                codecs=lambda: ("fast",),
                bounds=lambda: (None, None),
                begun=lambda begin: "",
                received=lambda key: None,
            ),
            self.engine,
        )

    def hear(self, *messages: Message) -> None:
        for message in messages:
            self.session.arrived(self.parent, message)

    def keep(self, key: ObjectKey, data: bytes = b"x" * 70_000) -> None:
        self.session.sink.put(
            transfer=0, key=key.text, index=0, offset=0, data=memoryview(data), sha256=hashlib.sha256(data).digest()
        )

    def term(self, number: int, incarnation: str = ME) -> Term:
        return term(self.trainer, number, incarnation)


def index(newest: int, number: int = 1) -> Index:
    rows = [(seq, digest(seq)) for seq in range(newest + 1)]
    return Index(lineage=A, term=number, incarnation=ME, start=None, versions=rows)


def head(seq: int, term: int = 1) -> Head:
    return Head(
        lineage=A, seq=seq, digest=digest(seq), step=None, term=term, incarnation=ME, published_unix_ns=0, trace=""
    )  # fmt: skip


def begin(transfer: int, key: ObjectKey, number: int = 1) -> Begin:
    return Begin(
        transfer=transfer, key=key.text, base=None, target_seq=key.target_seq, codec="fast", layout=LAYOUT, term=number,
        incarnation=ME, priority=0,
    )  # fmt: skip
