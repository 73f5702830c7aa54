"""Publishing to and fetching from an object store: beside the plain library, one big put, and a safetensors file.

    python -m tests.bench.bench_object_store [--size 60000000] [--bucket 4194304] [--parallel 32] [--rounds 5] [--quick]

A real S3 server. On loopback the goal is nine tenths of what the plain library does with the same parallelism; the
library that also hashes what it got and writes it to a synced file shows how much of the rest nobody can spare. Over an
emulated link of 100 ms the times are shown beside those of one big put and of one safetensors file with a marker, which
is how others do it. Prints JSON lines; exits 1 where a goal does not hold, 2 where the machine cannot run a lab.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from tests.bench.report import Report
from tests.support.children import REPOSITORY
from tests.support.s3 import BUCKET, s3_server, server_command, server_environment, write_credentials
from tools.errors import ToolError
from tools.linkemu import Lab, parse_link

LINK = "100ms/500M/0%"
PORT = 9000
GOAL = 0.9
TCP_BUFFERS = f"4096 131072 {64 << 20}"  # one connection must be able to fill the link
_CLIENT_TIMEOUT_S = 900
_START_S = 15


def main() -> int:
    """Both places."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--size", type=int, default=60_000_000)
    parser.add_argument("--bucket", type=int, default=4 << 20)
    parser.add_argument("--parallel", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="two rounds")
    options = parser.parse_args()
    if options.quick:
        options.rounds = 2
    report = Report("object_store")
    with tempfile.TemporaryDirectory(prefix="syncgroup-bench-") as folder:
        _on_loopback(report, Path(folder), options)
        try:
            _over_a_link(report, Path(folder), options)
        except ToolError as error:
            sys.stderr.write(f"{error}\n")
            return report.exit_code() or 2
    return report.exit_code()


def _on_loopback(report: Report, folder: Path, options: argparse.Namespace) -> None:
    home = folder / "loopback"
    home.mkdir()
    with s3_server(home) as server:
        command = _client(server.url, server.credentials, home, options)
        done = subprocess.run(
            command, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=_CLIENT_TIMEOUT_S
        )
    times = _times(done)
    for stage in ("publish_s", "fetch_s"):
        plain, ours = min(times["plain library"][stage]), min(times["ours"][stage])
        rate, baseline = options.size / ours / 1e6, options.size / plain / 1e6
        report.figure(
            "loopback", stage.removesuffix("_s"), round(rate, 1), "MB/s", baseline=round(baseline, 1),
            at_least=round(GOAL * baseline, 1),
        )  # fmt: skip
    fair, ours = min(times["plain library that proves and keeps"]["fetch_s"]), min(times["ours"]["fetch_s"])
    baseline = options.size / fair / 1e6
    report.figure(
        "loopback beside a library that proves and keeps", "fetch", round(options.size / ours / 1e6, 1), "MB/s",
        baseline=round(baseline, 1), at_least=round(GOAL * baseline, 1),
    )  # fmt: skip


def _over_a_link(report: Report, folder: Path, options: argparse.Namespace) -> None:
    home = folder / "link"
    home.mkdir()
    with Lab.start(2, link=parse_link(LINK)) as lab:
        for region in lab.regions:
            for name in ("net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"):
                lab.set_sysctl(region, name, TCP_BUFFERS)
        address = lab.address("b")
        with (home / "server.log").open("wb") as log:
            server = lab.popen(
                "b", server_command(home, f"{address}:{PORT}"), env=server_environment(), stdout=log, stderr=log
            )
        try:
            time.sleep(_START_S / 5)
            url = f"http://{address}:{PORT}/{BUCKET}"
            command = _client(url, write_credentials(home / "secret"), home, options)
            done = lab.run("a", command, cwd=REPOSITORY, capture_output=True, text=True, timeout=_CLIENT_TIMEOUT_S)
        finally:
            server.kill()
            server.wait()
    times = _times(done)
    for stage in ("publish_s", "fetch_s"):
        ours = statistics.median(times["ours"][stage])
        for way in ("one put", "one safetensors file", "plain library"):
            other = statistics.median(times[way][stage])
            report.figure(
                f"{LINK} beside {way}", stage.removesuffix("_s"), round(ours, 3), "s", baseline=round(other, 3)
            )


def _client(url: str, credentials: Path, home: Path, options: argparse.Namespace) -> list[str]:
    numbers = [options.size, options.bucket, options.parallel, options.rounds]
    words = [url, str(credentials), str(home / "client"), *map(str, numbers)]
    return [sys.executable, "-m", "tests.bench.object_store_client", *words]


def _times(done: subprocess.CompletedProcess[Any]) -> dict[str, dict[str, list[float]]]:
    if done.returncode != 0:
        raise SystemExit(f"the client failed: {done.stderr[-2000:]}")
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for line in done.stdout.splitlines():
        said = json.loads(line)
        for stage in ("publish_s", "fetch_s"):
            found[said["way"]][stage].append(said[stage])
    return found


if __name__ == "__main__":
    sys.exit(main())
