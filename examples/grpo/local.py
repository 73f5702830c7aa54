"""GRPO in one process, without a network: `python -m examples.grpo.local --out FOLDER`.

Always deterministic: what `trainer` must equal, bit for bit, when it runs with `--deterministic`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch

from . import settings as run_settings
from .model import load, make_deterministic
from .output import Output
from .sources import InProcess
from .training import Training, masters_sum


def main(arguments: list[str] | None = None) -> int:
    """Trains, and draws the plots."""
    parser = argparse.ArgumentParser(prog="grpo.local", description="GRPO in one process.")
    parser.add_argument("--out", type=Path, help="folder for figures and plots")
    parser.add_argument("--gguf", type=Path, help="file of SmolLM2, where it is not in the cache")
    parser.add_argument("--device", type=torch.device, default="cpu", help="where it trains and samples (%(default)s)")
    run_settings.add_arguments(parser)
    found = parser.parse_args(arguments)
    settings = run_settings.from_arguments(found)
    make_deterministic()
    policy = load(settings, found.gguf)
    policy.model.to(found.device)
    with Output(found.out, "GRPO in one process") as output:
        Training(policy, settings, InProcess(policy.model)).run(output.step)
        output.end(sum=masters_sum(policy))
    return 0


if __name__ == "__main__":
    sys.exit(main())
