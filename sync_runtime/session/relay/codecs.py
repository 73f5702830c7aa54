"""Whether a link gets `tight`: what both codecs cost the last time, against what the link carries. Pure but for notes.

The plan says where `tight` may be used; whether it pays is decided by the figures of versions that were coded both
ways. Until there are any, the plan is obeyed: only that brings them. Knows neither codec.
"""

from __future__ import annotations

from dataclasses import dataclass

from sync_runtime.bucket.keys import FAST, TIGHT, ObjectKey
from sync_runtime.tuning.codec import CodedObject, tight_pays, time_to_member_s


@dataclass(frozen=True)
class CodecVerdict:
    """Whether `tight` pays, and why, in one line."""

    pays: bool
    reason: str


class CodecBook:
    """What the last version cost in either codec."""

    def __init__(self) -> None:
        self._began_s: dict[ObjectKey, float] = {}
        self._fast: CodedObject | None = None
        self._tight_share: float | None = None
        """Bytes of `tight` against `fast`, of the last version that had both."""
        self._tight_s_per_byte = 0.0
        """Of `fast`'s bytes: the time to code grows with what changed."""

    def begun(self, key: ObjectKey, now_s: float) -> None:
        """An object is being written here."""
        if key.is_link:
            self._began_s = {one: at for one, at in self._began_s.items() if one.target_seq + 1 >= key.target_seq}
            self._began_s[key] = now_s

    def completed(self, key: ObjectKey, size_bytes: int, now_s: float) -> None:
        """It is whole."""
        began_s = self._began_s.pop(key, None)
        if began_s is None or not size_bytes:
            return
        spent_s = now_s - began_s
        if key.codec == FAST:
            self._fast = CodedObject(size_bytes, spent_s, spent_s)
        elif key.codec == TIGHT and self._fast is not None:
            self._tight_share = size_bytes / self._fast.size_bytes
            self._tight_s_per_byte = spent_s / self._fast.size_bytes

    def verdict(self, rate_bytes_per_s: float, *, in_use: bool) -> CodecVerdict:
        """For a link with this rate. A member decodes as long as it takes to encode, about: nobody tells more."""
        fast, share = self._fast, self._tight_share
        if fast is None or share is None or not rate_bytes_per_s > 0:
            return CodecVerdict(True, "tight, as the plan says: nothing is known yet that speaks against it")
        tight_s = self._tight_s_per_byte * fast.size_bytes
        tight = CodedObject(fast.size_bytes * share, fast.encode_s + tight_s, tight_s)  # it begins when `fast` is done
        pays = tight_pays(fast, tight, rate_bytes_per_s, in_use="Tight" if in_use else "Fast")
        tight_s, fast_s = time_to_member_s(tight, rate_bytes_per_s), time_to_member_s(fast, rate_bytes_per_s)
        word = "pays" if pays else "does not pay"
        return CodecVerdict(pays, f"tight {word} at this rate: {tight_s:.2f} s against {fast_s:.2f} s")
