"""What it costs to bring a child on, as far as objects tell: which transfers give way, and which codec a link gets.

Brings sizes from the spool and the link's pace to the pure rules (`superseding`, `codecs`), and remembers what they
need. Changes nothing but its own notes and a child's reason: the distributor acts.
"""

from __future__ import annotations

import logging

from sync_runtime.bucket.keys import FAST, TIGHT, ObjectKey, VersionRef
from sync_runtime.session.relay.codecs import CodecBook
from sync_runtime.session.relay.superseding import Chain, Verdict, chain_to, judge, links_sum
from sync_runtime.session.shelf import ChildView, Supply

_log = logging.getLogger(__name__)


class Economy:
    """The books of one sidecar."""

    def __init__(self, supply: Supply) -> None:
        self._supply = supply
        self._codecs = CodecBook()
        self._merged_share: float | None = None
        """Bytes of the last merged object against those of its links."""

    def begun(self, key: ObjectKey, now_s: float) -> None:
        """An object is being written or is arriving."""
        self._codecs.begun(key, now_s)

    def completed(self, key: ObjectKey, now_s: float) -> None:
        """It is whole."""
        self._codecs.completed(key, self.size_of(key) or 0, now_s)

    def made(self, key: ObjectKey) -> None:
        """An object that was asked for is there: what a merged one costs is known from now on."""
        if key.is_span and key.base is not None:
            links, size = links_sum(key.base, key.target, self.size_of), self.size_of(key)
            self._merged_share = size / links if links and size else self._merged_share

    def size_of(self, key: ObjectKey) -> int | None:
        """Of an object that is here whole."""
        stored = self._supply.stored(key)
        return None if stored is None else stored.size_bytes

    def replacement(self, view: ChildView, head: VersionRef | None) -> tuple[Chain, Verdict] | None:
        """What runs to a child and the merged object that might take its place; None: nothing is to be decided."""
        chain = chain_to(view.holds, view.transfers)
        if head is None or chain is None or not view.following:
            return None
        sizes = [self.size_of(view.transfers[number]) for number in chain.transfers]
        whole = None if None in sizes else sum(size or 0 for size in sizes)
        acked_bytes = sum(view.acked_bytes.get(number, 0) for number in chain.transfers)
        verdict = judge(
            chain,
            head,
            rest_bytes=None if whole is None else whole - acked_bytes,
            size_of=self.size_of,
            pace=self._supply.pace(view.link),
            merged_share=self._merged_share,
        )
        return None if verdict is None else (chain, verdict)

    def codecs_of(self, view: ChildView) -> tuple[str, ...]:
        """What the child prefers; `tight`, where it is made here, only while its link gains by it."""
        if not self._supply.makes or TIGHT not in view.codecs:
            return view.codecs
        verdict = self._codecs.verdict(self._supply.pace(view.link).capacity_bytes_per_s, in_use=view.tight_pays)
        if verdict.pays != view.tight_pays or not view.codec_reason:
            _log.info("link to %s: %s", view.name, verdict.reason)
        view.tight_pays, view.codec_reason = verdict.pays, verdict.reason
        return view.codecs if verdict.pays else tuple(one for one in view.codecs if one != TIGHT) or (FAST,)
