"""`make demo`: the whole idea in minutes, on this machine. `--keep` leaves it running, `--short` has shorter acts.

`--model smollm2` trains a real model in the same clusters instead, and breaks nothing. The exit code is 0 only if
everything that the story promises was seen.
"""

from __future__ import annotations

import argparse
import contextlib
import operator
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from sync_runtime.telemetry.waterfall import Trace, to_svg, to_text
from tools.demo import facts, group, page, summary
from tools.demo.nodes import Nodes
from tools.demo.planes import Planes
from tools.demo.play import Play, small_llm, tiny
from tools.demo.stage import Record, Stage
from tools.demo.terminal import Terminal
from tools.demo.watch import Watcher
from tools.devcluster import hostcheck
from tools.devcluster.config import Level
from tools.devcluster.hostpython import REPOSITORY
from tools.errors import HostError, ToolError, sentence_for

OUT = REPOSITORY / "build" / "demo"
PAGE, FIGURES, TROUBLE = "run.html", "figures.jsonl", "trouble.txt"
STEPS = 20
INTERRUPTED_EXIT_CODE = 130
Place = Nodes | Planes


def main(arguments: list[str] | None = None) -> int:
    """Run the demo; 0 when everything it promises was seen."""
    options = _parser().parse_args(arguments)
    for number in (signal.SIGTERM, signal.SIGHUP):  # whichever way it is ended, it cleans up
        signal.signal(number, signal.default_int_handler)
    with Terminal(plain=options.plain) as terminal:
        try:
            _perform(options, terminal)
        except KeyboardInterrupt:
            terminal.say("\nInterrupted; everything that was started has been ended.")
            return INTERRUPTED_EXIT_CODE
        except (ToolError, OSError) as error:
            terminal.rest()
            sys.stderr.write(f"error: {error if isinstance(error, ToolError) else sentence_for(error)}\n")
            return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make demo", description=str(__doc__).partition("\n")[0])
    parser.add_argument("--keep", action="store_true", help="leave it running, with a kubeconfig to play with")
    parser.add_argument("--short", action="store_true", help="shorter acts; the reward need not rise")
    parser.add_argument("--plain", action="store_true", help="lines instead of a screen that redraws")
    parser.add_argument("--local", action="store_true", help="as where namespaces are forbidden: local processes")
    parser.add_argument("--model", choices=("tiny", "smollm2"), default="tiny", help="what learns (%(default)s)")
    parser.add_argument("--steps", type=int, help=f"of training, with smollm2 ({STEPS})")
    parser.add_argument("--from-image", action="store_true", help="run smollm2 from the examples' image")
    parser.add_argument("--out", type=Path, default=OUT, help="folder for the page of the run (%(default)s)")
    return parser


def _perform(options: argparse.Namespace, terminal: Terminal) -> None:
    began_s = time.monotonic()

    def say(text: str) -> None:
        terminal.say(f"• {text} …  ({time.monotonic() - began_s:.0f} s)")

    kind = _kind(options, terminal)
    play = _play(options, say)
    if play.needs_nodes and kind is Planes:
        raise HostError(f"--model {options.model} needs real nodes; without them: examples/grpo/README.md.")
    with _folder(keep=options.keep) as folder:
        place = kind.start(folder, say, play, keep=options.keep)
        kept = False
        try:
            _show(place, options, terminal, began_s)
            kept = options.keep
            if kept:
                _leave(place, folder, terminal)
        finally:
            if not kept or isinstance(place, Planes):
                with _undisturbed():
                    place.down()
    if not options.keep:
        terminal.say(f"\nAll of it is gone again. The demo took {time.monotonic() - began_s:.0f} s.")


def _play(options: argparse.Namespace, say: Callable[[str], None]) -> Play:
    if options.steps is not None and options.steps < 1:
        raise ToolError(f"--steps is {options.steps}: give 1 or more.")
    if options.model == "smollm2":
        return small_llm(options.steps or STEPS, from_image=options.from_image, say=say)
    if options.from_image or options.steps is not None:
        raise ToolError("--steps and --from-image belong to --model smollm2.")
    return tiny(short=options.short)


def _kind(options: argparse.Namespace, terminal: Terminal) -> type[Nodes] | type[Planes]:
    reason = hostcheck.why_impossible(Level.NODES)
    if reason is None and not options.local:
        return Nodes
    if reason is not None:
        terminal.say(reason)
    terminal.say("The same story with control planes and local processes; links cannot be shaped without namespaces.\n")
    return Planes


def _show(place: Place, options: argparse.Namespace, terminal: Terminal, began_s: float) -> None:
    terminal.say(f"• kubectl apply -f {group.FILE.relative_to(REPOSITORY)} …  ({time.monotonic() - began_s:.0f} s)")
    place.apply()
    stage = Stage(
        place.play.beats(place.shaped), Watcher(place), terminal, lambda action: operator.methodcaller(action)(place),
        place.play.full_bytes, began_s=began_s,
    )  # fmt: skip
    options.out.mkdir(parents=True, exist_ok=True)
    try:
        stage.run()
    except ToolError:
        terminal.rest()
        (options.out / TROUBLE).write_text(place.describe())
        terminal.say(f"What was going on is in {options.out / TROUBLE}.")
        raise
    finally:
        _write_page(place, stage.record, options.out / PAGE, time.monotonic() - began_s, None)
    (options.out / FIGURES).write_text(facts.figures_text(place.log(group.trainer_name())))
    trace = _trace(place, stage.record)
    _write_page(place, stage.record, options.out / PAGE, time.monotonic() - began_s, trace)
    further = [f"open {options.out / PAGE}", *(place.look_further() if options.keep else _without_keeping())]
    waterfall = () if trace is None else to_text(trace, width=min(shutil.get_terminal_size((110, 24)).columns - 2, 140))
    took_s = time.monotonic() - began_s
    terminal.say(summary.text(stage.record, place.play.full_bytes, took_s, further, trace=waterfall))


def _trace(place: Place, record: Record) -> Trace | None:
    """Of the last version, which everybody has."""
    return None if record.scene.ended is None else place.trace(record.scene.ended.seq, len(record.scene.members))


def _write_page(place: Place, record: Record, path: Path, took_s: float, trace: Trace | None) -> None:
    svg = None if trace is None else to_svg(trace)
    play = place.play
    path.write_text(page.page(record, play.full_bytes, took_s, place.look_further(), svg, about=play.about))


def _without_keeping() -> list[str]:
    return ["make demo ARGS=--keep               # leaves it running, with a kubeconfig to play with"]


def _leave(place: Place, folder: Path, terminal: Terminal) -> None:
    """What somebody needs who goes on with it."""
    if isinstance(place, Nodes):
        terminal.say(f"\nIt runs on. End it with: .venv/bin/python -m tools.devcluster down --dir {folder / 'cluster'}")
        return
    terminal.say("\nIt runs on until you press Ctrl-C.")
    threading.Event().wait()


@contextlib.contextmanager
def _folder(*, keep: bool) -> Iterator[Path]:
    """A folder for everything; it stays only where all went well and is to be kept."""
    folder = Path(tempfile.mkdtemp(prefix="syncgroup-demo-"))
    try:
        yield folder
    except BaseException:
        keep = False
        raise
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """A second Ctrl-C does not stop the cleaning up."""
    before = {
        number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


if __name__ == "__main__":
    sys.exit(main())
