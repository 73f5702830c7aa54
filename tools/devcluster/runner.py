"""Turns a configuration into a running cluster: the process that `up` starts and that everything else hangs on."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import tempfile
from pathlib import Path
from typing import TypeVar

from tools.cache import cache_root, platform_tag, replacing
from tools.devcluster import bubble, cgroups, forward, hostcheck, hostpython, images
from tools.devcluster.config import PAUSE_IMAGE, ClusterConfig, Level
from tools.devcluster.supervisor import Report, Supervisor, reporter
from tools.errors import ToolError, sentence_for
from tools.kube import build, catalog

Failure = TypeVar("Failure", bound=BaseException)


def needed_tools(config: ClusterConfig) -> list[str]:
    """The sets of programs a configuration needs; nothing more is built."""
    sets = ["planes"]
    if config.kwok_nodes:
        sets.append("kwok")
    if config.level is not Level.PLANES:
        sets.append("nodes")
    return sets


def run(config: ClusterConfig, report_to: int) -> int:
    """Run the cluster until it is told to end. Returns the process's exit code."""
    report = reporter(report_to)
    try:
        tools = build.ensure(catalog.load(), needed_tools(config), config.kube)
        listeners = {region.name: forward.listener() for region in config.regions}
        if config.level is Level.PLANES:
            return _supervise(config, tools, listeners, report)
        config = _with_images(config, tools)
        if config.level is Level.LIMITS:
            cgroups.start_janitor([config.cgroup(region) for region in config.regions])
        keep = [config.directory, cache_root(), hostpython.REPOSITORY, Path(sys.prefix), Path(sys.base_prefix)]
        keep += [Path(archive).parent for archive in config.images]
        kind = bubble.IdMap.NONE if config.level is Level.LIMITS else bubble.choose_id_map()
        bubble.enter(keep, kind, lambda: _supervise(config, tools, listeners, report))
    except ToolError as error:
        report({"error": str(error)})
        return 2
    except OSError as error:
        report({"error": sentence_for(error)})
        return 2


def _supervise(config: ClusterConfig, tools: build.Toolbox, listeners: dict[str, socket.socket], report: Report) -> int:
    async def main() -> None:
        await Supervisor(config, tools, listeners, report).run()

    code = 0
    try:
        asyncio.run(main())
    except* ToolError as group:
        report({"error": str(_first(group))})
        code = 2
    except* OSError as group:
        report({"error": sentence_for(_first(group))})
        code = 2
    return code


def _first(group: BaseExceptionGroup[Failure]) -> Failure:
    error: Failure | BaseExceptionGroup[Failure] = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _with_images(config: ClusterConfig, tools: build.Toolbox) -> ClusterConfig:
    """The configuration with the two images that every node has: pause, and the empty one."""
    folder = cache_root() / "images" / platform_tag() / Path(tools["pause"]).parent.name
    made = []
    for reference, program in ((PAUSE_IMAGE, tools["pause"]), (hostpython.IMAGE, None)):
        archive = folder / (reference.replace("/", "_").replace(":", "_") + ".tar")
        if not archive.exists():
            with replacing(archive) as staged, tempfile.TemporaryDirectory() as root:
                if program is not None:
                    (Path(root) / "pause").write_bytes(Path(program).read_bytes())
                    (Path(root) / "pause").chmod(0o755)
                for name in ("tmp", "proc", "dev", "sys", "etc"):
                    (Path(root) / name).mkdir()
                images.pack(Path(root), staged, reference=reference, entrypoint=["/pause"] if program else [])
        made.append(str(archive))
    return config.with_images(tuple(made))


def main() -> int:
    """`python -m tools.devcluster.runner FD DIR`: the configuration comes on standard input.

    DIR is there to be read by people and by `down`, in the list of processes.
    """
    config = ClusterConfig.from_json(sys.stdin.read())
    os.chdir("/")
    # An ordinary user's PATH often lacks the folder of `ip`.
    os.environ["PATH"] = f"{os.environ.get('PATH', '')}:{hostcheck.SEARCH}"
    return run(config, int(sys.argv[1]))


if __name__ == "__main__":
    sys.exit(main())
