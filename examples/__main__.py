"""`python -m examples --version | --self-test`: what the examples' image answers. The programs are others:

    python -m examples.grpo.pod trainer|worker      in a pod
    python -m examples.grpo.local                   without Kubernetes

The self-test imports what the examples need and takes one step of training on the CPU.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import os
import sys

from sync_runtime.contract.selftest import SelfTestError, Step, run_steps, surroundings

PACKAGES = ("torch", "transformers", "tokenizers", "gguf", "matplotlib")
BROKEN = (ImportError, OSError, ValueError, RuntimeError, AttributeError)


def main(arguments: list[str] | None = None) -> int:
    """Answers one question; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m examples", description=str(__doc__).partition("\n")[0])
    choice = parser.add_mutually_exclusive_group(required=True)
    choice.add_argument("--version", action="store_true", help="print the versions of the library and of torch")
    choice.add_argument("--self-test", action="store_true", help="say whether this installation is whole")
    options = parser.parse_args(arguments)
    if options.version:
        found = (f"{name} {importlib.metadata.version(name)}" for name in ("syncgroup", "torch", "transformers"))
        _say(f"examples of {', '.join(found)}")
        return 0
    steps = (Step("imports", check_imports), Step("training", check_training), Step("root", check_surroundings))
    return run_steps(steps, _say, BROKEN)


def check_imports() -> str:
    """What the examples stand on."""
    for name in (*PACKAGES, "sync_runtime.library.publisher", "examples.grpo.training"):
        importlib.import_module(name)
    return f"{', '.join(PACKAGES)}, the library and the examples are there."


def check_training() -> str:
    """One step of plain training moves some weights and leaves finite ones."""
    torch = importlib.import_module("torch")
    torch.manual_seed(0)
    model = torch.nn.Linear(64, 64)
    before = model.weight.detach().clone()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model(torch.ones(8, 64)).square().mean().backward()
    optimizer.step()
    if torch.equal(before, model.weight) or not bool(torch.isfinite(model.weight).all()):
        raise SelfTestError("a step of training left the weights as they were, or not finite.")
    return f"torch {torch.__version__} takes steps on the CPU."


def check_surroundings() -> str:
    """Who this is, and where it may write."""
    return surroundings(read_only=bool(os.statvfs("/").f_flag & os.ST_RDONLY), uid=os.getuid())


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(main())
