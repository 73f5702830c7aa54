"""`python -m tools.images`: builds our images, tries them in containers, says how large they are.

build [NAME …]      with docker, podman or buildah (make images)
try [NAME …]        without any of them, and runs each in a container (needs root and Debian's packages)
check               the rules that Containerfiles keep
"""

from __future__ import annotations

import argparse
import sys

from tools.errors import ToolError, sentence_for
from tools.images import archive, container, containerfile, daemonless, engines
from tools.images.catalog import IMAGES, chosen

MIB = 1 << 20


def main(arguments: list[str] | None = None) -> int:
    """Run a command; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.images", description="Build and try our images.")
    commands = parser.add_subparsers(required=True)
    build = commands.add_parser("build", help="with docker, podman or buildah")
    build.add_argument("--engine", default="", help=f"one of {', '.join(engines.ENGINES)}; the first that works")
    build.add_argument("--prefix", default="syncgroup", help="in front of every image's name: REGISTRY/PROJECT")
    build.add_argument("--tag", default="", help="the package's version if empty")
    build.add_argument("--base-image", default="", help="what images stand on; the Containerfile's own if empty")
    build.add_argument("--build-image", default="", help="what they are built on; the base if empty")
    build.set_defaults(run=_build)
    trial = commands.add_parser("try", help="without a builder, as root on Debian; runs each in a container")
    trial.set_defaults(run=_try)
    for one in (build, trial):
        one.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(IMAGES)}; the small ones if none")
    commands.add_parser("check", help="the rules that Containerfiles keep").set_defaults(run=_check)
    options = parser.parse_args(arguments)
    try:
        return int(options.run(options))
    except ToolError as error:
        sys.stderr.write(f"error: {error}\n")
    except OSError as error:
        sys.stderr.write(f"error: {sentence_for(error)}\n")
    return 2


def _build(options: argparse.Namespace) -> int:
    wish = engines.Wish(options.prefix, options.tag, options.base_image, options.build_image)
    engines.build(engines.find(options.engine), chosen(options.names), wish, _say)
    return 0


def _try(options: argparse.Namespace) -> int:
    builder = daemonless.Builder(_say)
    builder.must_be_possible()
    code = 0
    for image in chosen(options.names):
        path = builder.ensure(image)
        facts = archive.read(path)
        _say(f"{image.name}: {facts.compressed_bytes / MIB:.0f} MiB in {facts.num_layers} layers, {path}")
        for words in ("--version", "--self-test"):
            done = container.run(builder, path, words)
            _say((done.stdout + done.stderr).rstrip())
            code = code or done.returncode
    return code


def _check(options: argparse.Namespace) -> int:
    broken = [
        f"{image.file}: {finding}"
        for image in IMAGES.values()
        for finding in containerfile.findings(containerfile.parse(image.path.read_text()))
    ]
    for line in broken:
        _say(line)
    return 1 if broken else 0


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
