"""`make images`: our Containerfiles with the builder that this machine has, docker, podman or buildah.

The builder's own configuration says where bases come from. Commands are made purely, then run with the caller watching.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tools.errors import BuildError, HostError
from tools.images import pipsettings
from tools.images.catalog import ROOT, Image, build_arguments

ENGINES = {"docker": ("docker", "info"), "podman": ("podman", "info"), "buildah": ("buildah", "info")}
"""Name -> a command that succeeds where the builder can work."""
PROBE_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Wish:
    """What the caller wants images to be called and made from."""

    prefix: str = "syncgroup"
    tag: str = ""
    base_image: str = ""
    build_image: str = ""


def find(wanted: str = "") -> str:
    """A builder that works, the named one or the first; raises HostError with what is wrong with each."""
    reasons = []
    for name in (wanted,) if wanted else ENGINES:
        if name not in ENGINES:
            raise HostError(f"there is no builder {name} here; use one of {', '.join(ENGINES)}.")
        reason = _why_not(name)
        if reason is None:
            return name
        reasons.append(f"{name} {reason}")
    raise HostError(
        f"no builder of images works here: {'; '.join(reasons)}. Install one of them; or, as root on Debian, "
        "`make test-images` builds them without one."
    )


def _why_not(name: str) -> str | None:
    if shutil.which(name) is None:
        return "is not installed"
    try:
        done = subprocess.run(ENGINES[name], capture_output=True, text=True, check=False, timeout=PROBE_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return f"did not answer within {PROBE_TIMEOUT_S:.0f} s"
    if done.returncode == 0:
        return None
    lines = done.stderr.strip().splitlines() or ["gave no reason"]
    return f"does not work ({lines[-1].strip()})"


def reference(image: Image, wish: Wish, version: str) -> str:
    """The name under which an image is built: the chart's own, unless the caller wants another."""
    return f"{wish.prefix.rstrip('/')}/{image.repository}:{wish.tag or version}"


def command(
    engine: str, image: Image, wish: Wish, *, arguments: Mapping[str, str], secrets: Mapping[str, Path]
) -> list[str]:
    """The builder's command line. Pure."""
    given = dict(arguments)
    if wish.base_image:
        given["BASE_IMAGE"] = wish.base_image
    if wish.build_image:
        given["BUILD_IMAGE"] = wish.build_image
    words = [engine, "build", "--file", image.file, "--tag", reference(image, wish, given["VERSION"])]
    words += ["--layers"] if engine == "buildah" else []
    words += [f"--secret=id={name},src={path}" for name, path in sorted(secrets.items())]
    words += [f"--build-arg={key}={value}" for key, value in sorted(given.items())]
    return [*words, "."]


def build(engine: str, images: list[Image], wish: Wish, say: Callable[[str], None]) -> None:
    """Build images one after the other; the builder's own words go to the terminal."""
    with tempfile.TemporaryDirectory(prefix="syncgroup-secrets-") as private:
        secrets = pipsettings.gather(os.environ).write(Path(private))
        arguments = build_arguments()
        for image in images:
            name = reference(image, wish, arguments["VERSION"])
            say(f"building {name} with {engine}")
            words = command(engine, image, wish, arguments=arguments, secrets=secrets)
            environment = os.environ | {"DOCKER_BUILDKIT": "1"}  # older dockers know --mount only with it
            if subprocess.run(words, cwd=ROOT, env=environment, check=False).returncode != 0:
                raise BuildError(f"{engine} could not build {name}; its own words are above.")
