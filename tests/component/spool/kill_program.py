"""`kill_program.py FOLDER ROUNDS SEED`: works on a spool in a child process, kills it at any moment, looks at the rest.

Each round forks a child that makes, receives, commits and removes objects without end and says so through a pipe; the
parent ends it by SIGKILL a random while after a random line, opens the spool itself, and checks all that was promised.
Prints one line of JSON. A plain process without threads: forking is safe and a round takes milliseconds.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from pathlib import Path

from sync_runtime.bucket.keys import parse_key
from sync_runtime.bucket.spool import Spool
from tests.unit.bucket.samples import cut, envelope_for, files, finished, link, named, open_spool, payload, put

MOST_LINES = 6
SIZE_BYTES = 150_000


def main(folder: Path, rounds: int, seed: int) -> dict[str, object]:
    dice = random.Random(seed)  # noqa: S311 -- which moment, not a secret
    promised: set[str] = set()
    seen: Counter[str] = Counter()
    term = 0
    step_s = 0.005
    for at in range(rounds):
        said, took_s = _one_life(folder, dice, step_s)
        step_s = 0.9 * step_s + 0.1 * took_s / max(1, len(said))  # disks differ: the wait is a part of one step
        seen.update(line.split()[0] for line in said)
        term = max(term, *(int(line.split()[1]) for line in said if line.startswith("term")), 0)
        for line in said:
            _note(line, promised)
        with open_spool(folder) as spool:
            _check(spool, promised, at)
            seen["partial"] += bool(spool.partial())
            after = spool.next_term()
        if after <= term:
            raise SystemExit(f"round {at}: term {term} was given out, then {after}")
        term = after
    return {"rounds": rounds, "seen": dict(seen), "objects": len(promised)}


def _one_life(folder: Path, dice: random.Random, step_s: float) -> tuple[list[str], float]:
    """What a child said before it was killed, a cut off line left out, and how long it lived."""
    seed, lines, wait_s = dice.randrange(1 << 30), dice.randrange(MOST_LINES), dice.uniform(0, step_s)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            _work(folder, writer, seed)
        finally:
            os._exit(3)  # it works until it is killed
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        began = time.monotonic()
        first = b"".join(pipe.readline() for _ in range(1 + lines))  # the spool is open: from here on any moment
        time.sleep(wait_s)
        took_s = time.monotonic() - began
        os.kill(child, signal.SIGKILL)
        rest = pipe.read()
    _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status):
        raise SystemExit(f"the child ended by itself: {status}")
    return [line.decode() for line in (first + rest).split(b"\n")[:-1]], took_s


def _work(folder: Path, pipe: int, seed: int) -> None:
    def say(line: str) -> None:
        os.write(pipe, line.encode() + b"\n")

    dice = random.Random(seed)  # noqa: S311
    spool = open_spool(folder)
    say("open")
    say(f"term {spool.next_term()}")
    while True:
        seq = dice.randrange(1, 40)
        key, data = link(seq), payload(SIZE_BYTES + seq, seed=seq)
        if spool.stored(key) is not None:
            say(f"removing {key}")
            spool.remove(key)
            say(f"removed {key}")
        elif seq % 2 and key not in spool.partial():
            writer = finished(spool, key, data)
            writer.commit(envelope_for(key, writer.buckets))
            say(f"committed {key}")
        else:
            pieces = cut(data)
            receiver = spool.receive(key)
            have = {index for first, last in receiver.have() for index in range(first, last)}
            say(f"resumed {len(have)}")
            put(receiver, pieces, *dice.sample(range(len(pieces)), len(pieces)))
            receiver.commit(envelope_for(key, named(pieces)))
            say(f"committed {key}")


def _note(line: str, promised: set[str]) -> None:
    word, _, text = line.partition(" ")
    if word == "committed":
        promised.add(text)
    elif word == "removing":
        promised.discard(text)  # from here on both are right


def _check(spool: Spool, promised: set[str], at: int) -> None:
    stored = {found.key.text: found for found in spool.objects()}
    lost = promised - set(stored)
    if lost:
        raise SystemExit(f"round {at}: committed and gone: {sorted(lost)}")
    for text, found in stored.items():
        seq = parse_key(text).target_seq
        if bytes(found.view()) != payload(SIZE_BYTES + seq, seed=seq):
            raise SystemExit(f"round {at}: {text} is visible with wrong bytes")
    for key in spool.partial():
        receiver = spool.receive(key)
        for first, last in receiver.have():
            for index in range(first, last):
                _, data, sha256 = receiver.read(index)
                if hashlib.sha256(data).digest() != sha256:
                    raise SystemExit(f"round {at}: bucket {index} of {key} is kept with wrong bytes")
    left = len(files(spool.path)) - 2 * len(stored) - 2 * len(spool.partial())
    if left or spool.problems:
        raise SystemExit(f"round {at}: {left} files are left over; {spool.problems}")


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))) + "\n")
