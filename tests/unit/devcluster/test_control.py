"""The control socket: long paths, hostile requests, and sentences that travel."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tools.devcluster import control
from tools.devcluster.control import MAX_LINE_BYTES, SOCKET
from tools.errors import ClusterError, HostError


async def _handler(request: dict[str, Any]) -> dict[str, Any]:
    match request["op"]:
        case "echo":
            return {"seen": request["value"]}
        case "refuse":
            raise HostError("Buy a bigger machine.")
        case "disk":
            raise OSError(28, "No space left on device", "/some/file")
        case "number":
            return {"number": int(request["value"])}
    raise ClusterError(f"no operation {request['op']}")


@contextlib.asynccontextmanager
async def _serving(folder: Path) -> AsyncIterator[None]:
    server = await control.serve(folder, _handler)
    try:
        yield
    finally:
        server.close()


def _call(folder: Path, op: str, **arguments: Any) -> dict[str, Any]:
    async def run() -> dict[str, Any]:
        async with _serving(folder):
            return await asyncio.to_thread(lambda: control.call(folder, op, timeout_s=5, **arguments))

    return asyncio.run(run())


def _raw(folder: Path, *lines: bytes) -> list[dict[str, Any]]:
    """What the server answers to bytes as they are, one answer per line."""

    async def run() -> list[dict[str, Any]]:
        async with _serving(folder):
            with control._short_path(folder) as path:
                reader, writer = await asyncio.open_unix_connection(path, limit=2 * MAX_LINE_BYTES)
            answers = []
            for line in lines:
                writer.write(line + b"\n")
                answers.append(json.loads(await asyncio.wait_for(reader.readline(), 5)))
            writer.close()
            return answers

    return asyncio.run(run())


def test_a_request_is_answered(tmp_path: Path) -> None:
    assert _call(tmp_path, "echo", value={"a": [1, None]}) == {"seen": {"a": [1, None]}}


def test_a_folder_with_a_path_longer_than_a_socket_address_works(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 120) / ("y" * 120)
    folder.mkdir(parents=True)
    assert _call(folder, "echo", value=1) == {"seen": 1}


def test_a_refusal_travels_as_its_sentence(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=r"^Buy a bigger machine\.$"):
        _call(tmp_path, "refuse")


def test_a_refusal_of_the_system_travels_as_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=r"The disk is full \(/some/file\); free some room"):
        _call(tmp_path, "disk")


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"not json",
        b"\xff\xfe",
        b"[]",
        b"null",
        b"{}",
        b'{"op": 3}',
        b'{"op": {"op": "echo"}}',
        b"[" * 100_000,
        b"x" * (MAX_LINE_BYTES - 10),
    ],
)
def test_a_hostile_line_is_answered_and_the_next_one_too(tmp_path: Path, line: bytes) -> None:
    first, second = _raw(tmp_path, line, b'{"op": "echo", "value": 1}')
    assert "a request must be" in first["error"]
    assert second == {"seen": 1}


def test_a_line_that_is_too_long_is_answered(tmp_path: Path) -> None:
    (answer,) = _raw(tmp_path, b"x" * (3 * MAX_LINE_BYTES))
    assert "a request must be one JSON object on one line" in answer["error"]


@pytest.mark.parametrize("value", ['"abc"', "Infinity", "null", "[]"])
def test_a_wrong_argument_is_answered(tmp_path: Path, value: str) -> None:
    (answer,) = _raw(tmp_path, b'{"op": "number", "value": %s}' % value.encode())
    assert answer["error"].startswith("the request 'number' lacks or misuses")


def test_a_missing_argument_is_named(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="'echo' lacks or misuses 'value'"):
        _call(tmp_path, "echo")


def test_only_the_owner_may_connect(tmp_path: Path) -> None:
    async def mode() -> int:
        async with _serving(tmp_path):
            return stat.S_IMODE((tmp_path / SOCKET).stat().st_mode)

    assert asyncio.run(mode()) == 0o600


def test_a_socket_left_by_a_killed_cluster_counts_for_nothing(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead, control._short_path(tmp_path) as path:
        dead.bind(path)
    assert (tmp_path / SOCKET).exists()
    with pytest.raises(ClusterError, match="No dev cluster runs in"):
        control.call(tmp_path, "status")
    assert _call(tmp_path, "echo", value=2) == {"seen": 2}  # and a new one takes its place


def test_a_folder_that_is_not_there_is_one_where_none_runs(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="start one with `make dev-up`"):
        control.call(tmp_path / "nowhere", "status")


@pytest.mark.parametrize("answer", [b"", b'{"half": '])
def test_a_cluster_that_ends_while_answering_is_a_sentence(tmp_path: Path, answer: bytes) -> None:
    async def run() -> None:
        async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readline()
            writer.write(answer)
            writer.close()

        with control._short_path(tmp_path) as path:
            server = await asyncio.start_unix_server(hang_up, path)
        with pytest.raises(ClusterError, match="ended while answering 'status'"):
            await asyncio.to_thread(control.call, tmp_path, "status", 5.0)
        server.close()

    asyncio.run(run())


def test_a_cluster_that_does_not_answer_in_time_is_a_sentence(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as mute, control._short_path(tmp_path) as path:
        mute.bind(path)
        mute.listen()
        with pytest.raises(ClusterError, match="did not answer 'status': timed out"):
            control.call(tmp_path, "status", timeout_s=0.1)
