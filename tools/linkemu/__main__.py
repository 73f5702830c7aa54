"""Command line: `python -m tools.linkemu lab|control|build|check`. Reads arguments, prints; decides nothing itself."""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from tools.errors import ToolError
from tools.linkemu.control import Controller
from tools.linkemu.emulator import EmulatorOptions
from tools.linkemu.errors import ShapeError
from tools.linkemu.host import unshare_command
from tools.linkemu.lab import Lab
from tools.linkemu.native import emulator_program
from tools.linkemu.shape import format_link, parse_link

_LAB_HELP = """commands on standard input, one per line (ENDS is a-b for both directions or a>b for one):
  set ENDS LINK      cut ENDS      mend ENDS      shapes      stats      reset      run REGION COMMAND...      quit"""


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def parse_ends(text: str) -> list[tuple[str, str]]:
    """`a-b` is both directions of a link, `a>b` one."""
    for mark in (">", "-"):
        one, found, other = text.partition(mark)
        if found and one and other:
            return [(one, other)] if mark == ">" else [(one, other), (other, one)]
    raise ShapeError(f"cannot read the ends {text!r}: write a-b for both directions of a link or a>b for one")


def set_links(controller: Controller, links: Iterable[str]) -> None:
    """Obey `--link` arguments that name their ends."""
    for link in links:
        ends, _, shape = link.partition("=")
        for source, destination in parse_ends(ends):
            controller.set(source, destination, parse_link(shape))


def _is_for_all(link: str) -> bool:
    """`100ms/...` concerns every link; `a-b=100ms/...` names its ends before the first slash."""
    return "=" not in link.partition("/")[0]


def obey(lab: Lab, words: list[str]) -> str:
    """One line of the lab's standard input; the answer is text to print."""
    emulator = lab.emulator
    match words:
        case ["set", ends, shape]:
            set_links(emulator, [f"{ends}={shape}"])
        case ["cut" | "mend" as verb, ends]:
            for source, destination in parse_ends(ends):
                (emulator.cut if verb == "cut" else emulator.mend)(source, destination)
        case ["shapes"]:
            return "\n".join(f"{a}>{b} {format_link(shape)}" for (a, b), shape in emulator.shapes().items())
        case ["stats"]:
            return json.dumps(asdict(emulator.stats()), indent=1)
        case ["reset"]:
            emulator.reset()
        case ["run", region, *command] if command and region in lab.regions:
            return f"exit status {lab.run(region, command, check=False).returncode}"
        case _:
            raise ShapeError(f"cannot read {shlex.join(words)!r}; {_LAB_HELP}")
    return "ok"


def _lab(arguments: argparse.Namespace) -> int:
    general = [link for link in arguments.link if _is_for_all(link)]
    options = EmulatorOptions(seed=arguments.seed, mtu_bytes=arguments.mtu)
    shape = parse_link(general[-1]) if general else None
    with Lab.start(arguments.regions, link=shape, kind=arguments.kind, options=options) as lab:
        set_links(lab.emulator, (link for link in arguments.link if not _is_for_all(link)))
        if arguments.command:
            return int(lab.run(arguments.inside, arguments.command, check=False).returncode)
        _say("regions: " + ", ".join(f"{name} {lab.address(name)}" for name in lab.regions) + f"\n{_LAB_HELP}")
        for line in sys.stdin:
            words = shlex.split(line)
            if words == ["quit"]:
                break
            try:
                _say(obey(lab, words) if words else "")
            except (ToolError, ValueError) as error:
                _say(f"error: {error}")
    return 0


def _control(arguments: argparse.Namespace) -> int:
    with Controller.connect(arguments.socket) as controller:
        _say(json.dumps(controller.request(" ".join(arguments.words)), indent=1))
    return 0


def _build(_: argparse.Namespace) -> int:
    _say(str(emulator_program()))
    return 0


def _check(_: argparse.Namespace) -> int:
    with Lab.start(1, kind="packet"):
        _say(f"a lab can run here: {shlex.join(unshare_command())}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.linkemu", description=__doc__)
    commands = parser.add_subparsers(required=True)
    raw = argparse.RawDescriptionHelpFormatter
    lab = commands.add_parser(
        "lab", help="regions of its own, without Kubernetes", epilog=_LAB_HELP, formatter_class=raw
    )
    lab.add_argument("--regions", type=int, default=2, metavar="N")
    lab.add_argument("--link", action="append", default=[], metavar="[ENDS=]LINK", help="e.g. a-b=100ms/500M/0.1%%")
    lab.add_argument("--kind", choices=("packet", "tun"), default="packet")
    lab.add_argument("--seed", type=int, default=1)
    lab.add_argument("--mtu", type=int, default=1500, metavar="BYTES")
    lab.add_argument("--inside", default="a", metavar="REGION", help="where COMMAND runs")
    lab.add_argument("command", nargs="*", metavar="COMMAND", help="run this and end; put -- before it")
    lab.set_defaults(run=_lab)
    control = commands.add_parser("control", help="one command for a running emulator, in its own words")
    control.add_argument("--socket", type=Path, required=True, metavar="PATH")
    control.add_argument("words", nargs="+", metavar="WORD")
    control.set_defaults(run=_control)
    commands.add_parser("build", help="build the program and print its path").set_defaults(run=_build)
    commands.add_parser("check", help="can a lab run on this machine?").set_defaults(run=_check)
    return parser


def main() -> int:
    """Run the command line; errors of ours are one sentence, not a trace."""
    arguments = _parser().parse_args()
    try:
        return int(arguments.run(arguments))
    except ToolError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except subprocess.TimeoutExpired as error:
        sys.stderr.write(f"{error.cmd[0]} did not answer in time: try again when the machine is quieter\n")
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
