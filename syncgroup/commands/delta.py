"""`syncgroup delta encode|apply|merge|invert|info|verify|import|export`: deltas between two checkpoints, no cluster.

Only the words of the command line; the work is in `delta_actions` and `delta_interop`. Errors of the runtime become
sentences here.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from sync_runtime.errors import SyncError
from syncgroup.actions import Action, add_actions, add_json, sentences
from syncgroup.commands import delta_actions as actions
from syncgroup.commands import delta_interop as interop

CODECS = ("auto", "fast", "tight")
_CHECKPOINT = "a .safetensors file, or a folder of shards with an index"


def configure(parser: argparse.ArgumentParser) -> None:
    """The eight actions."""
    add_actions(
        parser,
        "Make, apply, merge, invert, inspect and convert exact deltas between two checkpoints.",
        (
            Action("encode", "the delta from one checkpoint to another", _encode, actions.encode),
            Action("apply", "the checkpoint that a delta leads to", _apply, actions.apply),
            Action("merge", "one delta for several that follow each other", _merge, actions.merge),
            Action("invert", "the delta that leads back", _invert, actions.invert),
            Action("info", "what a delta holds", _info, actions.info),
            Action("verify", "whether a delta leads from one checkpoint to another", _verify, actions.verify),
            Action("import", "a delta of another tool as one of ours", _import, interop.import_foreign),
            Action("export", "a delta of ours as another tool's", _export, interop.export_foreign),
        ),
    )


def run(options: argparse.Namespace) -> int:
    """Do it; every expected failure is one sentence."""
    with sentences(SyncError):
        return int(options.action(options))


def _encode(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("base", type=Path, metavar="BASE", help=_CHECKPOINT)
    parser.add_argument("new", type=Path, metavar="NEW", help=_CHECKPOINT)
    _output(parser, "the delta to write")
    parser.add_argument("--codec", choices=CODECS, default="auto", help="auto: the smallest of all (default)")
    parser.add_argument(
        "--device", choices=("cpu", "cuda"), default="cpu", help="where to code; the bytes are the same"
    )
    parser.add_argument("--label", default="", help="a remark to carry along, such as the training step")
    _common(parser)


def _apply(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("base", type=Path, metavar="BASE", help=_CHECKPOINT)
    parser.add_argument("delta", type=Path, metavar="DELTA")
    _output(parser, "the checkpoint to write; a folder where BASE is one")
    _common(parser)


def _merge(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("deltas", type=Path, nargs="+", metavar="DELTA", help="in order: each starts where one ends")
    _output(parser, "the delta to write")
    _base_and_codec(parser)
    _common(parser)


def _invert(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("delta", type=Path, metavar="DELTA")
    _output(parser, "the delta to write")
    _base_and_codec(parser)
    _common(parser)


def _info(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("delta", type=Path, metavar="DELTA")
    _common(parser)


def _verify(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("base", type=Path, metavar="BASE", help=_CHECKPOINT)
    parser.add_argument("delta", type=Path, metavar="DELTA")
    parser.add_argument("new", type=Path, metavar="NEW", help=_CHECKPOINT)
    _common(parser)


def _import(parser: argparse.ArgumentParser) -> None:
    interop.add_import(parser)
    _common(parser)


def _export(parser: argparse.ArgumentParser) -> None:
    interop.add_export(parser)
    _common(parser)


def _output(parser: argparse.ArgumentParser, meaning: str) -> None:
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help=meaning)


def _base_and_codec(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--base", type=Path, metavar="BASE", help="where the first delta starts; needed if any is tight"
    )
    parser.add_argument("--codec", choices=CODECS, default="fast", help="of the result (default fast)")


def _common(parser: argparse.ArgumentParser) -> None:
    add_json(parser)
    parser.add_argument("--threads", type=_positive, metavar="N", help="default: one per core")


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least one thread is needed")
    return number
