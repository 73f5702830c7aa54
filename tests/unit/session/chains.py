"""Real versions in a real spool: small states, one update after the other, their deltas committed as a trainer does."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from sync_runtime.bucket.keys import ObjectKey, VersionRef, delta_key
from sync_runtime.bucket.manifest import Version, pack_envelope
from sync_runtime.bucket.spool import Spool, StoredObject
from sync_runtime.bucket.versions import Lineage
from sync_runtime.offline import Delta, diff, digest, layout_of
from sync_runtime.session.catch_up import Maker, MakerSettings
from sync_runtime.tensors.bits import BitTensor
from sync_runtime.tensors.layout import Layout
from tests.support.states import next_state, small_state

LINEAGE, OTHER = "aa" * 16, "bb" * 16
BUCKET_BYTES = 64 << 10
State = dict[str, BitTensor]


def sign(document: bytes) -> bytes:
    """Not a signature: these tests ask only that it is asked for and kept."""
    return bytes([len(document) % 251]) * 64


@dataclass
class Trainer:
    """A spool with versions in it, and the states that they are of."""

    spool: Spool
    layout: Layout
    states: dict[VersionRef, State] = field(default_factory=dict)
    maker: Maker = field(init=False)

    def __post_init__(self) -> None:
        self.maker = Maker(self.spool, MakerSettings(sign, lambda: BUCKET_BYTES, lambda: 2, threads=1))

    def begin(
        self, lineage: str, state: State, *, seq: int = 0, origin: VersionRef | None = None, term: int = 1
    ) -> None:
        """A lineage starts with a state."""
        start = Version(seq, digest(state, layout=self.layout, threads=1))
        self.spool.put_lineage(
            Lineage(lineage, term, "00" * 16, start, self.spool.put_layout(self.layout.document), origin)
        )
        self.states[VersionRef(lineage, seq)] = state

    def publish(self, lineage: str, count: int, seed: int = 0) -> None:
        """So many versions more."""
        for _ in range(count):
            newest = max(ref.seq for ref in self.states if ref.lineage == lineage)
            after = next_state(self.states[VersionRef(lineage, newest)], seed=100 + newest + seed)
            self.states[VersionRef(lineage, newest + 1)] = after
            self.commit(self.direct(VersionRef(lineage, newest), VersionRef(lineage, newest + 1)))

    def direct(self, base: VersionRef, target: VersionRef, codec: str = "fast") -> Delta:
        """The delta from state to state, as whoever has both would cut it."""
        label = f"step {target.seq}"
        seqs = (base.seq, target.seq)
        first, second = self.states[base], self.states[target]
        return diff(
            first, second, layout=self.layout, seqs=seqs, lineage=target.lineage, label=label, codec=codec, threads=1
        )

    def commit(self, delta: Delta) -> StoredObject:
        manifest = delta.manifest
        key = delta_key(manifest.lineage, delta.base.seq, delta.target.seq, manifest.codec)
        writer = self.spool.create(key, manifest.layout_hash, BUCKET_BYTES)
        writer.write(delta.object)
        writer.finish()
        return writer.commit(pack_envelope(replace(manifest, buckets=writer.buckets).to_json(), sign(b"")))

    def delta_of(self, key: ObjectKey) -> Delta:
        """A stored object as a delta, ready to apply."""
        stored = self.spool.stored(key)
        if stored is None:
            raise LookupError(key.text)
        return Delta(self.layout, stored.manifest, stored.view())


def make_trainer(folder: Path, versions: int = 4) -> Trainer:
    """A trainer whose lineage has versions 0 to `versions`."""
    state = small_state()
    trainer = Trainer(Spool.open(folder, max_bytes=1 << 40, max_versions=1000), layout_of(state))
    trainer.begin(LINEAGE, state)
    trainer.publish(LINEAGE, versions)
    return trainer
