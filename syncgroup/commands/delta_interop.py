"""`syncgroup delta import|export`: deltas as other tools write them. The work is in `sync_runtime.offline.interop`.

A base is asked for both ways: most of these formats do not say which state they start from.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from sync_runtime.offline import load
from sync_runtime.offline.checkpoints import open_checkpoint
from sync_runtime.offline.interop.convert import Coding, export_delta, import_delta
from sync_runtime.offline.interop.registry import FORMATS
from syncgroup.commands.delta_progress import Progress
from syncgroup.errors import CommandError
from syncgroup.output import say


def add_import(parser: argparse.ArgumentParser) -> None:
    """Arguments of `import`."""
    parser.add_argument("foreign", type=Path, metavar="FOREIGN", help="the file or folder of the other tool")
    _add_format(parser)
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="the delta to write")
    parser.add_argument(
        "--codec", choices=("auto", "fast", "tight"), default="auto", help="of the delta (default auto)"
    )
    parser.add_argument("--label", default="", help="a remark, in place of what the file says of itself")


def add_export(parser: argparse.ArgumentParser) -> None:
    """Arguments of `export`."""
    parser.add_argument("delta", type=Path, metavar="DELTA")
    _add_format(parser)
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="PATH", help="the file or folder to write")
    variants = "; ".join(f"{name}: {', '.join(entry.variants)}" for name, entry in FORMATS.items())
    parser.add_argument("--variant", metavar="NAME", help=f"the first is the default. {variants}")
    keys = "; ".join(f"{name}: {', '.join(entry.meta)}" for name, entry in FORMATS.items() if entry.meta)
    parser.add_argument(
        "--meta", action="append", default=[], type=_pair, metavar="KEY=VALUE", help=f"for the header. {keys}"
    )


def import_foreign(options: argparse.Namespace) -> int:
    """A foreign delta to ours."""
    base = open_checkpoint(options.base)
    foreign = FORMATS[options.format].read(options.foreign)
    _check_output(options.output)
    watch = Progress("converting").over
    coding = Coding(options.codec, options.label, options.threads, watch)
    manifest = import_delta(base, foreign, options.output, coding)
    facts: dict[str, object] = {
        "output": str(options.output),
        "format": options.format,
        "variant": foreign.origin.variant,
        "checked": foreign.origin.checked,
        "changed": manifest.num_changed,
        "bytes": options.output.stat().st_size,
        "base_digest": str(manifest.base.digest) if manifest.base else "",
        "target_digest": str(manifest.target.digest),
    }
    _tell(options, facts)
    return 0


def export_foreign(options: argparse.Namespace) -> int:
    """Our delta to a foreign one."""
    wanted = FORMATS[options.format]
    variant = options.variant or wanted.variants[0]
    _check_output(options.output)
    written = export_delta(
        open_checkpoint(options.base), load(options.delta), options.output, wanted,
        variant=variant, meta=dict(options.meta), threads=options.threads,
    )  # fmt: skip
    facts: dict[str, object] = {
        "output": str(options.output),
        "format": options.format,
        "variant": variant,
        "changed": written.num_changed,
        "tensors": written.num_tensors,
    }
    _tell(options, facts)
    return 0


def _add_format(parser: argparse.ArgumentParser) -> None:
    listed = "; ".join(f"{name}: {entry.summary}" for name, entry in FORMATS.items())
    parser.add_argument("--format", choices=tuple(FORMATS), required=True, help=listed)
    parser.add_argument("--base", type=Path, required=True, metavar="BASE", help="the checkpoint that it starts from")


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value


def _check_output(output: Path) -> None:
    if not output.parent.is_dir():
        raise CommandError(f"there is no folder {output.parent} to write to")


def _tell(options: argparse.Namespace, facts: dict[str, object]) -> None:
    width = max(map(len, facts))
    say(json.dumps(facts) if options.json else "\n".join(f"{key:{width}}  {value}" for key, value in facts.items()))
