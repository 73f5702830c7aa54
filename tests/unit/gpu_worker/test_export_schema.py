"""Messages between owner and worker: they come back as they were, and nothing else is let in."""

from dataclasses import fields
from typing import Any

import pytest

from sync_runtime.errors import LocalError, LocalProtocolError, SidecarLostError
from sync_runtime.library import export_messages as x
from sync_runtime.library.export_errors import HandlesChangedError, error_of
from sync_runtime.library.export_handles import CudaHandle, FileHandle, TensorHandle
from sync_runtime.library.export_schema import limit_of, pack, parse
from sync_runtime.library.export_wire import check_user
from sync_runtime.library.version import Version
from sync_runtime.local.frames import HEADER, FrameBuffer, pack_json, parse_json

VERSION = Version("a" * 32, 3, "b" * 32, -7)
EXPORT = x.Export(
    4, 2, "GPU-0a1b",
    (FileHandle("/w", 8), CudaHandle(b"\2c\xff", 512, 32, "/torch_1_2", 3, b"", waits_for_event=True)),
    (TensorHandle("ü", 1, "bfloat16", (4, 2), (2, 1), 3), TensorHandle("e", None, "int8", (0,), (1,), 0)),
    (("alias", "ü"),),
)  # fmt: skip
ALL: list[x.Message] = [
    x.Hello((1, 2), "publisher", 0, 2, "bfloat16", "library", True, None, 1000, 0),
    x.Hello((1,), "subscriber", 1, 2, None, None, False, False, 0, 5), x.Welcome(1),
    x.Failure(3, "LocalError", "no", retry=True), EXPORT, x.Opened(1), x.Validate(1, 2), x.Valid(1, 2),
    x.Publish(1, -5, "label"), x.Published(1, VERSION), x.Activate(1), x.Activated(1, None), x.Activated(1, VERSION),
    x.Scrub(1), x.Scrubbed(1, passed=True), x.Note(None), x.Close(1, 30_000), x.Closed(1, drained=False),
    x.State(VERSION, None, stale=True, poisoned=False), x.Beat(None, 0), x.Beat("Publish", 31_000),
]  # fmt: skip


@pytest.mark.parametrize("message", ALL, ids=lambda message: type(message).__name__)
def test_a_message_comes_back_as_it_was(message: x.Message) -> None:
    [(code, body)] = FrameBuffer(limit_of).feed(pack(message))
    assert parse(code, body) == message


@pytest.mark.parametrize("message", ALL, ids=lambda message: type(message).__name__)
def test_a_field_of_another_type_too_many_or_too_few_is_refused(message: x.Message) -> None:
    data = pack(message)
    code, content = data[0], parse_json(data[HEADER.size :])
    spoilt: list[dict[str, Any]] = [{**content, "more": 1}]
    for field in fields(message):
        spoilt.append({name: value for name, value in content.items() if name != field.name})
        spoilt.append({**content, field.name: {"other": [1]}})
    for one in spoilt:
        with pytest.raises(LocalProtocolError):
            parse(code, pack_json(one))


def test_what_a_user_passes_in_is_refused_at_home() -> None:
    with pytest.raises(LocalProtocolError, match="256"):
        pack(x.Publish(1, 0, "x" * 257))
    with pytest.raises(LocalProtocolError, match="integer"):
        pack(x.Publish(1, 1 << 70, ""))


def test_errors_cross_under_their_names() -> None:
    assert type(error_of("HandlesChangedError", "m", retry=True)) is HandlesChangedError
    assert type(error_of("SidecarLostError", "m", retry=True)) is SidecarLostError
    assert type(error_of("SystemExit", "m", retry=True)) is LocalError


def test_one_user_and_root_may_share_tensors() -> None:
    check_user(1000, 1000, frozenset())
    check_user(0, 1000, frozenset())
    check_user(1001, 1000, frozenset({1001}))
    with pytest.raises(LocalError, match="user 1001 may not"):
        check_user(1001, 1000, frozenset())
