"""The command line of the dev cluster: `python -m tools.devcluster up --regions 3 --dir DIR`, and so on."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from pathlib import Path

from tools.cache import cache_root
from tools.devcluster import client, config, hostcheck
from tools.devcluster.config import ClusterConfig, Level
from tools.errors import HostError, ToolError, sentence_for

DEFAULT_DIRECTORY = cache_root() / "dev"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="devcluster", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)

    def command(name: str, text: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=text, description=text)
        added.add_argument("--dir", type=Path, default=DEFAULT_DIRECTORY, help="the cluster's folder (%(default)s)")
        return added

    up = command("up", "start a cluster and return when it is ready")
    up.add_argument("--regions", default="3", help="a number, or names separated by commas (%(default)s)")
    up.add_argument("--level", choices=list(Level), type=Level, default=Level.NODES, help="how real (%(default)s)")
    up.add_argument("--kube", default="default", help="Kubernetes release, for example 1.36")
    up.add_argument("--kwok-nodes", type=int, default=0, help="invented nodes per region (%(default)s)")
    up.add_argument(
        "--link", action="append", default=[], metavar="A:B=RTT/RATE/LOSS", help="shape of a link; `*:*` is all"
    )
    up.add_argument("--image", action="append", default=[], metavar="TAR", help="OCI archive that every node imports")
    command("down", "end it; nothing of it remains but its logs")
    command("status", "regions, components, process ids, logs").add_argument("--json", action="store_true")
    execute = command("exec", "run a command in a region, KUBECONFIG set")
    execute.add_argument("region")
    execute.add_argument("argv", nargs=argparse.REMAINDER, metavar="CMD")
    for name, text in (("cut", "cut a link, or one region off"), ("mend", "mend what was cut")):
        added = command(name, text)
        added.add_argument("a", metavar="REGION")
        added.add_argument("b", metavar="REGION", nargs="?")
    shape = command("shape", "shape the link between two regions, both ways")
    shape.add_argument("a", metavar="REGION")
    shape.add_argument("b", metavar="REGION")
    shape.add_argument("shape", help="RTT/RATE/LOSS, for example 100ms/500M/0.1%%")
    command("links", "what the link emulator counted, as JSON")
    kill = command("kill", "send a signal to a component")
    kill.add_argument("region")
    kill.add_argument("component")
    kill.add_argument("--signal", type=int, default=int(signal.SIGKILL))
    restart = command("restart", "start a component again")
    restart.add_argument("region")
    restart.add_argument("component")
    kubeconfig = command("kubeconfig", "print a kubeconfig: the admin's, or a service account's")
    kubeconfig.add_argument("region")
    kubeconfig.add_argument("--service-account", metavar="NAMESPACE/NAME")
    kubeconfig.add_argument("--inside", action="store_true", help="for use by pods of other regions")
    check = command("check", "say which levels are possible on this machine")
    check.add_argument("--level", choices=list(Level), type=Level)
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run one subcommand; a problem a person can mend is one sentence and exit code 2."""
    options = _parser().parse_args(arguments)
    try:
        return _dispatch(options)
    except ToolError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    except OSError as error:
        sys.stderr.write(f"error: {sentence_for(error)}\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write("error: interrupted; what was started has been ended.\n")
        return 130


def _dispatch(options: argparse.Namespace) -> int:
    match options.command:
        case "up":
            return _up(options)
        case "check":
            return _check(options)
    cluster = client.Cluster.attach(options.dir.resolve())
    match options.command:
        case "down":
            cluster.down()
        case "status":
            _print_status(cluster, as_json=options.json)
        case "exec":
            command = options.argv[1:] if options.argv[:1] == ["--"] else options.argv
            handle = cluster.regions[cluster.config.region(options.region).name]
            planes = cluster.config.level is Level.PLANES
            os.environ["KUBECONFIG"] = str(handle.kubeconfig if planes else handle.kubeconfig_inside)
            os.environ["PATH"] = f"{cluster.tools.search_path()}:{os.environ['PATH']}"
            line = cluster.exec_command(options.region, command or ["sh"])
            try:
                os.execvp(line[0], line)  # noqa: S606 - the person's own command, never a shell's text
            except FileNotFoundError as error:
                raise HostError(f"There is no command {line[0]!r} on this machine; check its name.") from error
        case "cut" | "mend":
            cluster.call(options.command, a=options.a, b=options.b)
        case "shape":
            cluster.shape(options.a, options.b, options.shape)
        case "links":
            _write(json.dumps(cluster.call("links")["links"], indent=1))
        case "kill":
            cluster.kill(options.region, options.component, options.signal)
        case "restart":
            cluster.restart(options.region, options.component)
        case "kubeconfig":
            _print_kubeconfig(cluster, options)
    return 0


def _up(options: argparse.Namespace) -> int:
    regions = config.parse_regions(options.regions)
    wanted = ClusterConfig(
        directory=options.dir.resolve(),
        level=options.level,
        regions=regions,
        kube=options.kube,
        kwok_nodes=options.kwok_nodes,
        links=tuple(config.parse_link(text, regions) for text in options.link),
        images=tuple(str(Path(path).resolve()) for path in options.image),
    )
    cluster = client.start(wanted, say=lambda text: _write(f"  {text}"))
    for name, handle in cluster.regions.items():
        _write(f"{name}: export KUBECONFIG={handle.kubeconfig}")
    return 0


def _check(options: argparse.Namespace) -> int:
    levels = [options.level] if options.level else list(Level)
    worst = 0
    for level in levels:
        reason = hostcheck.why_impossible(level)
        _write(f"{level.value}: possible" if reason is None else reason)
        worst = max(worst, 1 if reason else 0)
    return worst if options.level else 0


def _print_status(cluster: client.Cluster, *, as_json: bool) -> None:
    status = cluster.status()
    if as_json:
        _write(json.dumps(status, indent=1))
        return
    _write(f"level {status['level']}, process {status['pid']}, logs in {status['logs']}")
    for name, region in status["regions"].items():
        state = " (cut)" if region["cut"] else ""
        _write(f"{name}{state}: KUBECONFIG={region['kubeconfig']}")
        for component, facts in region["components"].items():
            running = f"pid {facts['pid']}" if facts["pid"] else f"ended with {facts['exit_code']}, see {facts['log']}"
            _write(f"  {component:20} {running}")


def _print_kubeconfig(cluster: client.Cluster, options: argparse.Namespace) -> None:
    handle = cluster.regions[cluster.config.region(options.region).name]
    if options.service_account:
        namespace, _, name = options.service_account.partition("/")
        _write(handle.service_account_kubeconfig(namespace, name, inside=options.inside))
    else:
        _write((handle.kubeconfig_inside if options.inside else handle.kubeconfig).read_text())


def _write(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # whichever way `up` is stopped, nothing stays behind
    sys.exit(main())
