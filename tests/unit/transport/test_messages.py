"""Messages: exactly the fields of PROTOCOL.md, exactly their limits."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sync_runtime.errors import FrameError
from sync_runtime.transport import messages
from sync_runtime.transport.body import JsonMessage
from sync_runtime.transport.messages import (
    Abort,
    Ack,
    Begin,
    Drop,
    Follow,
    Head,
    Heartbeat,
    Hello,
    LayoutDocument,
    ManifestEnvelope,
    Message,
    Nack,
    Place,
    Refuse,
    Signer,
    Status,
    Streams,
    Term,
    Want,
    Welcome,
    decode,
    encode,
)
from sync_runtime.transport.wire import FrameReader, FrameType
from sync_runtime.transport.work_messages import (
    Holding,
    Result,
    ResultHead,
    Return,
    Revoke,
    Take,
    Task,
    TaskHead,
    Verdict,
)

HEX32, HEX64 = "0f" * 16, "0f" * 32
SAMPLES: list[Message] = [
    Hello(
        protocols=[1], kind="data", group="g-1", member="m", cluster="c", region="r", role="rollout", term=2,
        token=HEX32,
    ),
    Welcome(protocol=1, member="t", term=2, incarnation=None, token=HEX32, streams=4, heartbeat_ms=1000),
    Refuse(reason="TooMany", message="come back later", retry=True),
    Follow(lineage=None, seq=None, digest=None, codecs=["fast"], out_of_service=False, want_anchor=False),
    Want(key=f"{HEX32}/3-9.fast", have=[[0, 3], [9, 10]], blocks=None),
    Drop(transfer=3, reason="WrongBase"),
    Status(serving=Place(lineage=HEX32, seq=3), needs=None, members=4),
    Streams(count=8),
    Signer(certificates="-----BEGIN CERTIFICATE-----"),
    Head(
        lineage=HEX32, seq=1, digest=HEX32, step=None, term=1, incarnation=HEX32, published_unix_ns=2**62, trace=""
    ),
    Begin(
        transfer=1, key=f"{HEX32}/anchor-3", base=None, target_seq=3, codec="anchor", layout=HEX64, term=1,
        incarnation=HEX32, trace=f"00-{HEX32}-{'0f' * 8}-01", priority=2, bytes=None, buckets=None,
    ),
    Abort(transfer=2**32 - 1, reason="NotFound"),
    Term(term=7, incarnation=HEX32, signature="0f" * 64),
    Ack(1, (4, 5)),
    Nack(1, 4),
    LayoutDocument(b"{}"),
    ManifestEnvelope(3, b"SGM1"),
    Heartbeat(FrameType.PING, 2**64 - 1),
    Heartbeat(FrameType.PONG, 0),
    Holding(leases=["1-2-3"]),
    Take(lineage=HEX32, seq=3, digest=HEX32, want=2),
    Take(lineage=None, seq=None, digest=None, want=0),
    Task(
        TaskHead(lease="1-2-3", id="0-17", samples=8, lineage=HEX32, seq=1, digest=HEX32, step=-1), b"\x00prompt"
    ),
    Result(
        ResultHead(lease="1-2-3", lineage=HEX32, seq=1, digest=HEX32, scrubbed=True, tokens=9, busy_ms=40), b""
    ),
    Verdict(lease="1-2-3", reason="Counted", message="", retry=False),
    Return(lease="1-2-3", reason="Released: too hard", failed=True),
    Revoke(lease="1-2-3", reason="Expired"),
]  # fmt: skip
JSON_SAMPLES = [sample for sample in SAMPLES if isinstance(sample, JsonMessage)]


def body_of(sample: JsonMessage, **changes: Any) -> bytes:
    return json.dumps(sample.model_dump() | changes).encode()


@pytest.mark.parametrize("message", SAMPLES, ids=lambda message: type(message).__name__)
def test_a_message_survives_the_way(message: Message) -> None:
    ((kind, body),) = FrameReader(frozenset(FrameType)).feed(encode(message))
    assert decode(kind, body) == message


@pytest.mark.parametrize("sample", JSON_SAMPLES, ids=lambda message: type(message).__name__)
def test_a_field_too_many_or_too_few_is_refused(sample: JsonMessage) -> None:
    with pytest.raises(FrameError, match="no others"):
        decode(sample.TYPE, body_of(sample, surprise=1))
    for name in type(sample).model_fields:
        document = sample.model_dump()
        del document[name]
        with pytest.raises(FrameError, match="no others"):
            decode(sample.TYPE, json.dumps(document).encode())


@pytest.mark.parametrize(
    ("sample", "changes"),
    [
        (SAMPLES[0], {"role": "admin"}),
        (SAMPLES[0], {"token": "short"}),
        (SAMPLES[0], {"term": -1}),
        (SAMPLES[0], {"term": True}),
        (SAMPLES[0], {"term": "1"}),
        (SAMPLES[0], {"member": "Not A Label"}),
        (SAMPLES[0], {"protocols": []}),
        (SAMPLES[1], {"streams": 65}),
        (SAMPLES[4], {"key": "../../etc/passwd\n"}),
        (SAMPLES[4], {"have": [[3, 3]]}),
        (SAMPLES[4], {"have": [[4, 3]]}),
        (SAMPLES[4], {"have": [[0, 1, 2]]}),
        (SAMPLES[10], {"priority": 3}),
        (SAMPLES[10], {"buckets": 2**20 + 1}),
        (SAMPLES[10], {"trace": "0" * 65}),
    ],
)
def test_a_value_outside_its_limits_is_refused(sample: JsonMessage, changes: dict[str, Any]) -> None:
    with pytest.raises(FrameError, match="bad field"):
        decode(sample.TYPE, body_of(sample, **changes))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff",
        b"[]",
        b"null",
        b'{"count":1.0}',
        b'{"count":NaN}',
        b'{"count":1,"count":2}',
        b'{"count":' + b"9" * 5000 + b"}",
        b'{"count":' + b"[" * 9 + b"]" * 9 + b"}",
        b'{"count":' + b"[" * 100_000,
    ],
)
def test_what_is_no_plain_json_object_is_refused(body: bytes) -> None:
    with pytest.raises(FrameError):
        decode(FrameType.STREAMS, body)


@given(st.sampled_from(sorted(messages._JSON)), st.binary(max_size=200) | st.text(max_size=100).map(str.encode))
def test_no_body_whatsoever_raises_anything_but_a_frame_error(kind: FrameType, body: bytes) -> None:
    with pytest.raises(FrameError):
        decode(kind, body)


@pytest.mark.parametrize("kind", [FrameType.TASK, FrameType.RESULT])
@given(body=st.binary(max_size=80))
def test_a_payload_with_any_head_raises_nothing_but_a_frame_error(kind: FrameType, body: bytes) -> None:
    with pytest.raises(FrameError):
        decode(kind, body)
