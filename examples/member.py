"""The smallest program for a SyncGroup's pods: a trainer that publishes every second, or a rollout that follows it.

    python member.py trainer|rollout

One JSON line per version: its number, and SHA-256 over all bits of the model. It needs torch, and the library: as the
operator mounts it, or installed. Without an operator SYNCGROUP_SOCKET names the sidecar's socket. `make demo` runs it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time

import torch

# In front: the environment that this machine lends to the pods may have the library installed, too.
if "SYNCGROUP_LIBRARY" in os.environ:
    sys.path.insert(0, os.environ["SYNCGROUP_LIBRARY"])

from sync_runtime import Publisher, Subscriber

OPEN_S = 120.0


def make_model() -> torch.nn.Module:
    """The same everywhere: version 0."""
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 256)).bfloat16()


def tell(seq: int, model: torch.nn.Module) -> None:
    """The version, and the sum of its bits."""
    whole = hashlib.sha256()
    for tensor in model.state_dict().values():
        whole.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    sys.stdout.write(json.dumps({"seq": seq, "sum": whole.hexdigest()}) + "\n")
    sys.stdout.flush()


def train() -> None:
    """A step changes about one element in a hundred."""
    model = make_model()
    with Publisher(model, timeout=OPEN_S) as publisher:
        for step in range(1, 1_000_000):
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.add_(torch.randn_like(parameter) * (torch.rand(parameter.shape) < 0.01))
            tell(publisher.publish(step=step).seq, model)
            time.sleep(1)


def roll_out() -> None:
    """Activates what comes."""
    model = make_model()
    last = -1
    with Subscriber(model, timeout=OPEN_S) as subscriber:
        while True:
            subscriber.wait(timeout=1)
            subscriber.activate()
            if subscriber.version is not None and subscriber.version.seq != last:
                last = subscriber.version.seq
                tell(last, model)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("role", choices=["trainer", "rollout"])
    if parser.parse_args().role == "trainer":
        train()
    else:
        roll_out()
