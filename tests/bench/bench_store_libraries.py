"""Which library to reach object stores with: the same puts, gets and polls through each, on one real S3 server.

    PYTHON tests/bench/bench_store_libraries.py [--objects 60] [--size 1048576] [--parallel 8] [--rounds 3]

Needs the S3 server (`python -m tools.kube build s3`) and measures the libraries that PYTHON has of obstore, aiobotocore
and s3fs. Prints one JSON object per figure and line: wall seconds (the best round), and this process's own CPU seconds
(the median), which a busy machine disturbs least. No goals: it serves one decision (docs/decisions).
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import importlib.util
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))  # run as a file, from anywhere

from tests.bench.report import Report
from tests.support.s3 import ACCESS, BUCKET, SECRET, s3_server

REGION = "us-east-1"
POLLS = 200
Case = Callable[[], None]


class Obstore:
    """Threads, as the sidecar uses it."""

    def __init__(self, address: str, parallel: int) -> None:
        self._obstore = importlib.import_module("obstore")
        store: Any = importlib.import_module("obstore.store")
        self._store = store.S3Store(
            BUCKET, endpoint=address, access_key_id=ACCESS, secret_access_key=SECRET, region=REGION,
            virtual_hosted_style_request=False, client_options={"allow_http": True},
        )  # fmt: skip
        self._pool = ThreadPoolExecutor(parallel)

    def put(self, names: list[str], data: bytes) -> None:
        list(self._pool.map(lambda name: self._obstore.put(self._store, name, data, use_multipart=False), names))

    def get(self, names: list[str]) -> int:
        return sum(self._pool.map(lambda name: len(self._obstore.get(self._store, name).bytes()), names))

    def poll(self, name: str, count: int) -> None:
        exceptions: Any = importlib.import_module("obstore.exceptions")
        tag = self._obstore.head(self._store, name)["e_tag"]
        for _ in range(count):
            try:
                self._obstore.get(self._store, name, options={"if_none_match": tag})
            except exceptions.NotModifiedError:
                continue

    def close(self) -> None:
        self._pool.shutdown()


class Asynchronous:
    """What both libraries on asyncio share: one loop, so many requests at a time."""

    def __init__(self, parallel: int) -> None:
        self._loop = asyncio.new_event_loop()
        self._parallel = parallel

    def run(self, act: Callable[[str], Awaitable[int]], names: list[str]) -> int:
        async def all_of_them() -> int:
            gate = asyncio.Semaphore(self._parallel)

            async def one(name: str) -> int:
                async with gate:
                    return await act(name)

            return sum(await asyncio.gather(*(one(name) for name in names)))

        return self._loop.run_until_complete(all_of_them())


class Aiobotocore(Asynchronous):
    """The asynchronous botocore."""

    def __init__(self, address: str, parallel: int) -> None:
        super().__init__(parallel)
        session: Any = importlib.import_module("aiobotocore.session")
        config: Any = importlib.import_module("aiobotocore.config")
        self._errors: Any = importlib.import_module("botocore.exceptions")
        self._stack = AsyncExitStack()
        settings = config.AioConfig(
            max_pool_connections=parallel,
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
        made = session.get_session().create_client(
            "s3", region_name=REGION, endpoint_url=address, aws_access_key_id=ACCESS, aws_secret_access_key=SECRET,
            config=settings,
        )  # fmt: skip
        self._client: Any = self._loop.run_until_complete(self._stack.enter_async_context(made))

    def put(self, names: list[str], data: bytes) -> None:
        async def act(name: str) -> int:
            await self._client.put_object(Bucket=BUCKET, Key=name, Body=data)
            return 0

        self.run(act, names)

    def get(self, names: list[str]) -> int:
        async def act(name: str) -> int:
            found = await self._client.get_object(Bucket=BUCKET, Key=name)
            async with found["Body"] as body:
                return len(await body.read())

        return self.run(act, names)

    def poll(self, name: str, count: int) -> None:
        async def act(_: str) -> int:
            try:
                await self._client.get_object(Bucket=BUCKET, Key=name, IfNoneMatch=tag)
            except self._errors.ClientError as error:
                if error.response["ResponseMetadata"]["HTTPStatusCode"] != 304:
                    raise
            return 0

        found = self._loop.run_until_complete(self._client.head_object(Bucket=BUCKET, Key=name))
        tag = found["ETag"]
        for _ in range(count):
            self._loop.run_until_complete(act(name))

    def close(self) -> None:
        self._loop.run_until_complete(self._stack.aclose())
        self._loop.close()


class S3fs(Asynchronous):
    """fsspec's S3, by its asynchronous methods."""

    def __init__(self, address: str, parallel: int) -> None:
        super().__init__(parallel)
        s3fs: Any = importlib.import_module("s3fs")
        checks = {"request_checksum_calculation": "when_required", "response_checksum_validation": "when_required"}

        async def make() -> Any:
            made = s3fs.S3FileSystem(
                key=ACCESS, secret=SECRET, endpoint_url=address, client_kwargs={"region_name": REGION},
                config_kwargs={"max_pool_connections": parallel, **checks}, asynchronous=True, use_listings_cache=False,
            )  # fmt: skip
            self._session = await made.set_session()
            return made

        self._files: Any = self._loop.run_until_complete(make())

    def put(self, names: list[str], data: bytes) -> None:
        async def act(name: str) -> int:
            await self._files._pipe_file(f"{BUCKET}/{name}", data, chunksize=64 << 20)
            return 0

        self.run(act, names)

    def get(self, names: list[str]) -> int:
        async def act(name: str) -> int:
            return len(await self._files._cat_file(f"{BUCKET}/{name}"))

        return self.run(act, names)

    def poll(self, name: str, count: int) -> None:
        """It has no conditional get: the etag is asked for."""
        for _ in range(count):
            self._loop.run_until_complete(self._files._info(f"{BUCKET}/{name}", refresh=True))

    def close(self) -> None:
        self._loop.run_until_complete(self._session.close())
        self._loop.close()


LIBRARIES: dict[str, type[Obstore | Aiobotocore | S3fs]] = {
    "obstore": Obstore,
    "aiobotocore": Aiobotocore,
    "s3fs": S3fs,
}


def measure(report: Report, name: str, address: str, options: argparse.Namespace) -> None:
    """All figures of one library."""
    started = time.process_time()
    library = LIBRARIES[name](address, options.parallel)
    report.figure(name, "import and first client", round(time.process_time() - started, 3), "CPU s")
    data = bytes(range(256)) * (options.size // 256)
    names = [f"{name}/{index}" for index in range(options.objects)]

    def get() -> None:
        if library.get(names) != len(data) * len(names):
            raise SystemExit(f"{name} did not bring back what was put")

    cases: dict[str, Case] = {
        "put": lambda: library.put(names, data),
        "get": get,
        "poll unchanged": lambda: library.poll(names[0], POLLS),
    }
    for case, act in cases.items():
        wall, cpu = [], []
        for _ in range(options.rounds):
            wall_started, cpu_started = time.perf_counter(), time.process_time()
            act()
            wall.append(time.perf_counter() - wall_started)
            cpu.append(time.process_time() - cpu_started)
        report.figure(name, f"{case}, best", round(min(wall), 4), "s")
        report.figure(name, f"{case}, CPU of the client", round(statistics.median(cpu), 4), "CPU s")
    library.close()


def main() -> int:
    """Runs every library that is there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--objects", type=int, default=60)
    parser.add_argument("--size", type=int, default=1 << 20)
    parser.add_argument("--parallel", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    report = Report("store_libraries")
    with tempfile.TemporaryDirectory() as folder, s3_server(Path(folder)) as server:
        for name in LIBRARIES:
            if importlib.util.find_spec(name) is not None:
                measure(report, name, f"http://127.0.0.1:{server.port}", options)
    return report.exit_code()


if __name__ == "__main__":
    sys.exit(main())
