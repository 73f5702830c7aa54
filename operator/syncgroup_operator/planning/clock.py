"""Wall times as the state and the status write them. Pure: the present comes in as an argument.

What was written lies in the past; where a clock was set back since then it would lie in the future, and a back-off or a
window could last for years. A time in the future therefore counts as now.
"""

from __future__ import annotations

import datetime

LONG_AGO = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def written(moment: datetime.datetime) -> str:
    """As the contract's `Time`: UTC, milliseconds."""
    return f"{moment.astimezone(datetime.UTC).replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"


def micro_written(moment: datetime.datetime) -> str:
    """As Kubernetes' MicroTime: UTC, always six digits."""
    return f"{moment.astimezone(datetime.UTC):%Y-%m-%dT%H:%M:%S.%f}Z"


def read(text: str) -> datetime.datetime:
    """A contract's `Time`; its shape was checked when the document was read."""
    whole, _, fraction = text.removesuffix("Z").partition(".")
    moment = datetime.datetime.fromisoformat(whole).replace(tzinfo=datetime.UTC)
    return moment + datetime.timedelta(microseconds=int(fraction[:6].ljust(6, "0"))) if fraction else moment


def past(text: str | None, now: datetime.datetime) -> datetime.datetime | None:
    """A moment that was written, at most now."""
    return None if text is None else min(read(text), now)


def seconds_since(moment: datetime.datetime, now: datetime.datetime) -> float:
    """Never negative."""
    return max((now - moment).total_seconds(), 0.0)


def minute_of(now: datetime.datetime) -> int:
    """Minutes since 1970."""
    return max(int((now - LONG_AGO).total_seconds() // 60), 0)
