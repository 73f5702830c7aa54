"""What a person asks of a running group once, and how far that is.

A request stands in the spec with an id of its own, so that it survives whoever reads it, and the status acknowledges it
under that id: it is honoured once, however often it is read. Knows nothing of how a request is carried out.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from sync_runtime.contract.base import Model
from sync_runtime.contract.fields import DnsLabel, Message, Time
from sync_runtime.contract.rules import Invariant, Rule

MAX_REQUESTS = 16

RequestType = Literal["Replace", "Scrub"]
RequestProgress = Literal["Waiting", "Running", "Done", "Refused"]


class Request(Model):
    """Something to be done once."""

    id: DnsLabel = Field(description="Its own; a request is carried out once under its id.")
    type: RequestType = Field(
        description="Replace: the member gets another pod, within the limits of `lease`. Scrub: every member compares "
        "its live weights with the version that it serves."
    )
    member: DnsLabel | None = Field(None, description="Of Replace: the member, as its pod is called.")

    RULES: ClassVar[tuple[Invariant, ...]] = (
        Rule(
            cel="(self.type == 'Replace') == has(self.member)",
            message="a request of type Replace names a member, and a Scrub is of all members and names none",
            holds=lambda self: (self.type == "Replace") == (self.member is not None),
            field="member",
        ),
    )


class RequestStatus(Model):
    """How far a request is."""

    id: DnsLabel = Field(description="Which request of the spec.")
    type: RequestType = Field(description="What was asked for.")
    member: DnsLabel | None = Field(None, description="Of whom.")
    state: RequestProgress = Field(
        description="Waiting: not begun. Running: begun. Done: over. Refused: cannot be carried out."
    )
    message: Message | None = Field(None, description="How far, or why not, in a sentence.")
    begun_time: Time | None = Field(None, description="When it was begun.")
