"""A distributor over links that write down what they are told; what it sends is what tests read."""

from __future__ import annotations

from dataclasses import dataclass, field

from sync_runtime.bucket.keys import ObjectKey, VersionRef
from sync_runtime.bucket.objects import BucketSource
from sync_runtime.bucket.stored import StoredObject
from sync_runtime.errors import TransportError
from sync_runtime.session.relay import Distributor, Shelved, Supply
from sync_runtime.session.shelf import LinkPace
from sync_runtime.session.versions import Versions
from sync_runtime.transport.messages import Begin, Follow, Head, Message

A, B, LAYOUT, ME = "a" * 32, "b" * 32, "c" * 64, "d" * 32


@dataclass
class Link:
    """A link that writes down what it is told."""

    said: list[object] = field(default_factory=list)
    count: int = 0
    refuses: bool = False

    def begin(self, message: Begin, source: BucketSource | None) -> int:
        if self.refuses:
            raise TransportError("the link has ended, or has enough to do")
        self.count += 1
        self.said.append(("begin", self.count, message.key))
        return self.count

    def add_bucket(self, transfer: int, index: int) -> None:
        self.said.append(("bucket", transfer, index))

    def complete(self, transfer: int, envelope: bytes) -> None:
        self.said.append(("complete", transfer))

    def abort(self, transfer: int, reason: str) -> None:
        self.said.append(("abort", transfer, reason))

    def send(self, message: Message) -> None:
        self.said.append(message)

    def heard(self, kind: str) -> list[tuple[object, ...]]:
        return [item for item in self.said if isinstance(item, tuple) and item[0] == kind]


class Source:
    """A source of nothing."""

    def read(self, index: int) -> tuple[int, memoryview, bytes]:
        raise AssertionError("the distributor reads no bucket")


class House:
    """A distributor with five versions of one lineage, and what it asked others for."""

    def __init__(self, *, makes: bool = False, pace: LinkPace | None = None) -> None:
        self.asked: list[tuple[str, object]] = []
        self.stored: dict[ObjectKey, StoredObject] = {}
        self.chain: list[ObjectKey] = []
        """What a relay that follows a store has."""
        self.superseded: list[str] = []
        self.pace = pace or LinkPace()
        self.versions = Versions()
        self.versions.fence.admit(1, ME)
        self.versions.learn_lineage(A, [(seq, f"{seq:032x}") for seq in range(5)], start=None)
        supply = Supply(
            stored=self.stored.get,
            layout=lambda name: b"{}" if name == LAYOUT else None,
            request=lambda key, blocks: self.asked.append((key.text, blocks)),
            makes=makes,
            chain=lambda: self.chain,
            pace=lambda _: self.pace,
            superseded=lambda _, __, reason: self.superseded.append(reason),
        )
        self.distributor = Distributor(self.versions, supply)

    def child(self, seq: int | None, *, lineage: str = A, codecs: tuple[str, ...] = ("fast",)) -> Link:
        link = Link()
        self.distributor.connected(link, "eu-0")
        self.follow(link, seq, lineage=lineage, codecs=codecs)
        return link

    def follow(self, link: Link, seq: int | None, *, lineage: str = A, codecs: tuple[str, ...] = ("fast",)) -> None:
        message = Follow(
            lineage=None if seq is None else lineage,
            seq=seq,
            digest=None,
            codecs=list(codecs),  # type: ignore[arg-type]
            out_of_service=seq is None,
            want_anchor=seq is None,
        )
        self.distributor.arrived(link, message)

    def shelve(self, key: ObjectKey, *, buckets: int = 0, done: bool = False) -> None:
        begin = Begin(
            key=key.text, base=None, target_seq=key.target_seq, codec="fast", layout=LAYOUT, term=1, incarnation=ME,
            priority=0,
        )  # fmt: skip
        self.distributor.begun(Shelved(key, begin, Source(), list(range(buckets)), b"m" if done else None))

    def publish(self, seq: int) -> None:
        self.versions.learn_head(VersionRef(A, seq), f"{seq:032x}")
        self.distributor.set_head(
            Head(
                lineage=A,
                seq=seq,
                digest=f"{seq:032x}",
                step=None,
                term=1,
                incarnation=ME,
                published_unix_ns=0,
                trace="",
            )
        )
