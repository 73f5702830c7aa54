"""`syncgroup delta encode|apply|merge|invert|info|verify`: deltas between two checkpoints, without a cluster.

Only the words of the command line; the work is in `delta_actions`. Errors of the runtime become sentences here.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from sync_runtime.errors import SyncError
from syncgroup.commands import delta_actions as actions
from syncgroup.errors import CommandError

CODECS = ("auto", "fast", "tight")
_CHECKPOINT = "a .safetensors file, or a folder of shards with an index"


def configure(parser: argparse.ArgumentParser) -> None:
    """The six actions."""
    parser.description = "Make, apply, merge, invert and inspect exact deltas between two checkpoints."
    chosen = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    _encode(chosen.add_parser("encode", help="the delta from one checkpoint to another"))
    _apply(chosen.add_parser("apply", help="the checkpoint that a delta leads to"))
    _merge(chosen.add_parser("merge", help="one delta for several that follow each other"))
    _invert(chosen.add_parser("invert", help="the delta that leads back"))
    _info(chosen.add_parser("info", help="what a delta holds"))
    _verify(chosen.add_parser("verify", help="whether a delta leads from one checkpoint to another"))


def run(options: argparse.Namespace) -> int:
    """Do it; every expected failure is one sentence."""
    try:
        return int(options.action(options))
    except SyncError as error:
        raise CommandError(f"{error}.".replace("..", ".")) from error
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        raise CommandError(f"{place}{error.strerror or error}") from error


def _encode(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("base", type=Path, metavar="BASE", help=_CHECKPOINT)
    parser.add_argument("new", type=Path, metavar="NEW", help=_CHECKPOINT)
    _output(parser, "the delta to write")
    parser.add_argument("--codec", choices=CODECS, default="auto", help="auto: the smallest of all (default)")
    parser.add_argument(
        "--device", choices=("cpu", "cuda"), default="cpu", help="where to code; the bytes are the same"
    )
    parser.add_argument("--label", default="", help="a remark to carry along, such as the training step")
    _common(parser, actions.encode)


def _apply(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("base", type=Path, metavar="BASE", help=_CHECKPOINT)
    parser.add_argument("delta", type=Path, metavar="DELTA")
    _output(parser, "the checkpoint to write; a folder where BASE is one")
    _common(parser, actions.apply)


def _merge(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("deltas", type=Path, nargs="+", metavar="DELTA", help="in order: each starts where one ends")
    _output(parser, "the delta to write")
    _base_and_codec(parser)
    _common(parser, actions.merge)


def _invert(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("delta", type=Path, metavar="DELTA")
    _output(parser, "the delta to write")
    _base_and_codec(parser)
    _common(parser, actions.invert)


def _info(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("delta", type=Path, metavar="DELTA")
    _common(parser, actions.info)


def _verify(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("base", type=Path, metavar="BASE", help=_CHECKPOINT)
    parser.add_argument("delta", type=Path, metavar="DELTA")
    parser.add_argument("new", type=Path, metavar="NEW", help=_CHECKPOINT)
    _common(parser, actions.verify)


def _output(parser: argparse.ArgumentParser, meaning: str) -> None:
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help=meaning)


def _base_and_codec(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--base", type=Path, metavar="BASE", help="where the first delta starts; needed if any is tight"
    )
    parser.add_argument("--codec", choices=CODECS, default="fast", help="of the result (default fast)")


def _common(parser: argparse.ArgumentParser, action: Callable[[argparse.Namespace], int]) -> None:
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--threads", type=_positive, metavar="N", help="default: one per core")
    parser.set_defaults(action=action)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least one thread is needed")
    return number
