"""The user's process in pods of tests: a small trainer, or a rollout that follows it. One JSON line per version.

python pod_program.py trainer|rollout

It knows nothing but the mounted library and torch, as a user's image would. The sums in its lines are SHA-256 over all
bits of the model, so that equality does not rest on the library's own digest.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import sys
import time

import torch

# In front, not behind: the environment that tests run in may have this checkout installed, and the mounted library is
# what must be shown to work.
sys.path.insert(0, os.environ["SYNCGROUP_LIBRARY"])

from sync_runtime import Publisher, Subscriber
from sync_runtime.errors import SyncError

EVERY_S = 1.0
OPEN_S = 120.0


def make_model() -> torch.nn.Module:
    """The same everywhere: the public checkpoint of this group."""
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.LayerNorm(512), torch.nn.Linear(512, 64)).bfloat16()


def step_once(model: torch.nn.Module, generator: torch.Generator) -> None:
    """Changes about one element in a hundred."""
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator).to(parameter.dtype)
            parameter.add_(noise * (torch.rand(parameter.shape, generator=generator) < 0.01))


def sum_of(model: torch.nn.Module) -> str:
    """SHA-256 over the bits."""
    whole = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        whole.update(name.encode())
        whole.update(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return whole.hexdigest()


def tell(**line: object) -> None:
    """One line for whoever reads the log."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def train() -> None:
    """Publishes a version every second, on a line of its own: no two trainers take the same steps."""
    model = make_model()
    generator = torch.Generator().manual_seed(secrets.randbits(60))
    with Publisher(model, timeout=OPEN_S) as publisher:
        for step in range(1, 1_000_000):
            step_once(model, generator)
            version = publisher.publish(step=step)
            tell(lineage=version.lineage, seq=version.seq, sum=sum_of(model))
            time.sleep(EVERY_S)


def roll_out() -> None:
    """Activates what comes; scrubs each."""
    model = make_model()
    last = None
    with Subscriber(model, timeout=OPEN_S) as subscriber:
        while True:
            subscriber.wait(timeout=1.0)
            subscriber.activate()
            version = subscriber.version
            if version is not None and version.ref != last:
                last = version.ref
                tell(lineage=version.lineage, seq=version.seq, sum=sum_of(model))


def main() -> int:
    """Until the pod ends; an error ends the process, as it would a user's, and the kubelet starts it again."""
    import sync_runtime

    tell(library=sync_runtime.__file__)
    try:
        train() if sys.argv[1] == "trainer" else roll_out()
    except SyncError as error:
        tell(error=str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
