"""The forwarder: bytes arrive as they left, a cut stalls them, and what breaks on one side breaks on the other."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from tools.devcluster import forward
from tools.devcluster.forward import Forwarder

pytestmark = pytest.mark.timeout(15)
Session = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def _forwarding(serve: Session) -> AsyncIterator[Forwarder]:
    """A target that serves each connection, and a forwarder in front of it."""

    async def session(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(ConnectionError):
            await serve(reader, writer)

    target = await asyncio.start_server(session, "127.0.0.1", 0)
    port = target.sockets[0].getsockname()[1]
    forwarder = Forwarder(forward.listener(), "127.0.0.1", port)
    await forwarder.start()
    try:
        yield forwarder
    finally:
        target.close()
        forwarder.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.write_eof()


async def _open(forwarder: Forwarder) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", forwarder.port)


def test_megabytes_come_back_intact_and_the_end_of_the_stream_crosses() -> None:
    payload = random.Random(1).randbytes(4_000_000)  # noqa: S311 - bytes to compare, not a secret

    async def run() -> bytes:
        async with _forwarding(_echo) as forwarder:
            reader, writer = await _open(forwarder)

            async def send() -> None:
                writer.write(payload)
                await writer.drain()
                writer.write_eof()

            _, received = await asyncio.gather(send(), reader.read())
            writer.close()
            return received

    assert asyncio.run(run()) == payload


def test_a_half_closed_connection_still_gets_its_whole_answer() -> None:
    answer = b"a" * 1_000_000

    async def answer_at_the_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.write(answer)
        await writer.drain()
        writer.write_eof()

    async def run() -> int:
        gc.freeze()  # what is there already is not looked at: each collection takes a moment, not a second
        async with _forwarding(answer_at_the_end) as forwarder:
            forwarder._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)  # accepted ones inherit it
            near = socket.socket()
            near.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            near.connect(("127.0.0.1", forwarder.port))
            reader, writer = await asyncio.open_connection(sock=near, limit=4096)
            writer.write_eof()
            for _ in range(40):  # a loop holds its tasks weakly: one that only its own streams know of may vanish
                gc.collect()
                await asyncio.sleep(0)
            received = 0
            while data := await reader.read(8192):
                received += len(data)
                await asyncio.sleep(0.001)  # a slow reader: the answer's tail waits in the forwarder
            writer.close()
            return received

    try:
        assert asyncio.run(run()) == len(answer)
    finally:
        gc.unfreeze()


def test_a_cut_stalls_an_open_connection_and_mending_goes_on_where_it_was() -> None:
    async def run() -> None:
        async with _forwarding(_echo) as forwarder:
            reader, writer = await _open(forwarder)
            writer.write(b"before ")
            assert await reader.readexactly(7) == b"before "
            forwarder.cut()
            assert forwarder.is_cut
            writer.write(b"during ")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(reader.read(1), 0.2)
            writer.write(b"after")
            forwarder.mend()
            assert await reader.readexactly(12) == b"during after"
            writer.close()

    asyncio.run(run())


def test_new_connections_hang_while_cut() -> None:
    async def run() -> None:
        async with _forwarding(_echo) as forwarder:
            forwarder.cut()
            reader, writer = await _open(forwarder)
            writer.write(b"x")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(reader.read(1), 0.2)
            forwarder.mend()
            assert await reader.readexactly(1) == b"x"
            writer.close()

    asyncio.run(run())


def test_the_end_of_a_stream_does_not_cross_a_cut() -> None:
    async def run() -> None:
        async with _forwarding(_echo) as forwarder:
            reader, writer = await _open(forwarder)
            writer.write(b"x")
            assert await reader.readexactly(1) == b"x"
            forwarder.cut()
            writer.write_eof()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(reader.read(), 0.2)
            forwarder.mend()
            assert await reader.read() == b""
            writer.close()

    asyncio.run(run())


def test_a_target_that_refuses_closes_the_connection() -> None:
    async def run() -> None:
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            forwarder = Forwarder(forward.listener(), "127.0.0.1", closed.getsockname()[1])
            await forwarder.start()
            reader, writer = await _open(forwarder)
            with contextlib.suppress(ConnectionResetError):
                assert await asyncio.wait_for(reader.read(), 5) == b""
            writer.close()
            forwarder.close()

    asyncio.run(run())


def test_a_client_that_breaks_off_is_felt_by_the_target_at_once() -> None:
    async def run() -> None:
        ended: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        async def silent(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
            try:
                ended.set_result(await reader.read())
            except ConnectionResetError:
                ended.set_result(b"reset")

        async with _forwarding(silent) as forwarder:
            client = socket.create_connection(("127.0.0.1", forwarder.port))
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # close with a reset
            await asyncio.sleep(0.1)
            client.close()
            assert await asyncio.wait_for(ended, 5) in (b"", b"reset")

    asyncio.run(run())


def test_each_listener_has_a_loopback_port_of_its_own() -> None:
    with forward.listener() as one, forward.listener() as two:
        assert one.getsockname()[0] == "127.0.0.1"
        assert one.getsockname()[1] != two.getsockname()[1]
