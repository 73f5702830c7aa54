"""The trainer's program: weights to the sidecar, prompt groups to workers under leases, steps from what comes back.

    python -m examples.grpo.trainer --out FOLDER --deterministic

Started again with the same folder, it goes on from its checkpoint.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import urllib.request
from contextlib import suppress
from pathlib import Path

from sync_runtime import Publisher, Work
from sync_runtime.contract import names

from . import settings as run_settings
from .model import WIRE, load, make_deterministic
from .output import Output, tell_wait
from .sources import Leased
from .training import Training, load_masters, masters_sum, read_checkpoint, wire_sum

OPEN_S = 300.0
RESULT_S = 600.0
"""The longest that no result at all comes before this gives up."""


def main(arguments: list[str] | None = None) -> int:
    """Trains; with `--hold` it stays afterwards, as a pod should."""
    found = _parser().parse_args(arguments)
    settings = run_settings.from_arguments(found)
    if found.deterministic:
        make_deterministic()
    policy = load(settings, found.gguf)
    checkpoint = None if found.out is None else found.out / "checkpoint.pt"
    saved = None if checkpoint is None else read_checkpoint(checkpoint)
    if saved is not None:
        load_masters(policy, saved)
    tell_wait(found.socket, OPEN_S)
    with (
        Output(found.out) as output,
        Publisher(
            policy.model, wire_dtype=WIRE, engine="transformers", socket=found.socket, timeout=OPEN_S, patience=OPEN_S
        ) as publisher,
    ):
        work = Work(socket=found.socket, order="fixed" if found.deterministic else "throughput", timeout=OPEN_S)
        vocabulary = policy.model.config.vocab_size
        source = Leased(publisher, work, vocabulary, timeout_s=RESULT_S, count_bytes=_LinkBytes(found.control))
        training = Training(policy, settings, source, checkpoint)
        if saved is None:
            work.clear()
        else:
            training.load_learner(saved)
            training.load_source(saved)
        training.run(output.step, stop=lambda: found.stop_file is not None and found.stop_file.exists())
        work.close()
        version = publisher.version
        named = {} if version is None else {"seq": version.seq, "digest": version.digest}
        output.end(sum=masters_sum(policy), wire_sum=wire_sum(policy), **named)
        if found.hold:
            threading.Event().wait()
    return 0


class _LinkBytes:
    """Bytes that the sidecar sent over all its links, as its control API tells them."""

    def __init__(self, control: str) -> None:
        self._address, self._last = f"http://{control}/v1/links", 0

    def __call__(self) -> int:
        with suppress(OSError, ValueError):  # a figure for a plot: a sidecar that is busy costs a point, not the run
            with urllib.request.urlopen(self._address, timeout=2) as answer:  # noqa: S310 our own sidecar
                links = json.load(answer)["links"]
            self._last = sum(int(link["sentBytes"]) for link in links)
        return self._last


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="grpo.trainer", description="GRPO over SyncGroup: the trainer.")
    parser.add_argument("--out", type=Path, help="folder for checkpoint, figures and plots")
    parser.add_argument("--gguf", type=Path, help="file of SmolLM2, where it is not in the cache")
    parser.add_argument("--socket", help="the sidecar's; in a pod it is known")
    usual = os.environ.get(names.ENV_CONTROL, f"127.0.0.1:{names.CONTROL_PORT}")
    parser.add_argument("--control", default=usual, help="host:port of the sidecar's control API")
    parser.add_argument("--deterministic", action="store_true", help="work in a fixed order, one thread: equal bits")
    parser.add_argument("--hold", action="store_true", help="stay when all steps are done")
    parser.add_argument("--stop-file", type=Path, help="end after the step in hand once this file is there")
    run_settings.add_arguments(parser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
