"""Builds our images on this machine without a daemon, a registry or an installed builder: Debian's buildah, unpacked.

buildah, runc and their libraries are unpacked into the cache and run from there; nothing is installed. Their store is
in the cache too, with every layer that was built once: after a change of code only that layer is made anew. Needs root.
"""

from __future__ import annotations

import json
import os
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from tools import debian
from tools.cache import cache_root, exclusive, platform_tag, replacing
from tools.debian import Archive
from tools.errors import BuildError, HostError
from tools.images import base, pipsettings
from tools.images.catalog import LOCAL, ROOT, Image, build_arguments

PROGRAMS = ("buildah", "runc")
LIBRARIES = ("libgpgme11", "libassuan0", "libgpg-error0", "libsubid4", "libdevmapper1.02.1", "libseccomp2")
POLICY, REGISTRIES = "policy.json", "registries.conf"
TRUST = '{"default": [{"type": "insecureAcceptAnything"}]}\n'
"""Nothing is pulled from elsewhere here, only from archives that were made a moment ago."""
# The machine's libraries win over the unpacked ones.
ENTER = 'mount -t overlay -o "lowerdir=$1:$0" libraries "$1" && shift && exec "$@"'
READERS = ("build", "from", "pull", "push")
"""The commands that ask whom to trust."""
BUILD_TIMEOUT_S = 3600.0
KEPT = 3
"""Archives of one image that stay: this checkout's, and those of a few before it."""


def folder() -> Path:
    """Where all of it is kept."""
    return cache_root() / "images" / platform_tag() / "built"


def why_impossible() -> str | None:
    """One sentence that names the first obstacle, or None."""
    if os.getuid() != 0:
        return "Images can only be built here by root: their files belong to root. Otherwise use docker or podman."
    reason = debian.why_impossible()
    return None if reason is None else f"Images cannot be built here: {reason}"


def archive_of(image: Image) -> Path:
    """Where the archive of an image of this checkout is, or will be."""
    return folder() / f"{image.name}-{image.fingerprint()}.tar"


def reference_of(image: Image) -> str:
    """What nodes call it."""
    return f"{LOCAL}/{image.repository}:{image.fingerprint()}"


class Builder:
    """buildah with a store of its own."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._home = folder()
        self._tools = self._home / "tools"

    def must_be_possible(self) -> None:
        """Raises HostError where it is not."""
        reason = why_impossible()
        if reason is not None:
            raise HostError(reason)

    def ensure(self, image: Image) -> Path:
        """The image's archive; built unless that was done."""
        target = archive_of(image)
        if not target.exists():
            with exclusive(self._home / ".lock"):
                if not target.exists():
                    self._build(image, target)
        return target

    def _build(self, image: Image, target: Path) -> None:
        # Asked first: the checkout may change while a build runs, and the name must be that of its archive.
        reference = reference_of(image)
        self.prepare()
        self._say(f"building the image {image.name}")
        bases = base.ensure(self._home)
        runs_on = "base-compiler" if image.compiles else "base"
        archives = {
            runs_on: base.ensure_compiler(self._home, bases) if image.compiles else bases.run_archive,
            "base-build": bases.build_archive,
        }
        for name, archive in archives.items():
            self._pull(archive, f"localhost/{name}:{bases.key}")
        arguments = build_arguments() | {
            "BASE_IMAGE": f"localhost/{runs_on}:{bases.key}",
            "BUILD_IMAGE": f"localhost/base-build:{bases.key}",
        }
        tag = f"localhost/{image.name}:built"
        with tempfile.TemporaryDirectory(prefix="syncgroup-secrets-") as private:
            secrets = pipsettings.gather(os.environ).write(Path(private))
            words = ["build", "--layers", "--isolation", "chroot", "--pull-never", "--format", "oci", "--tag", tag]
            words += ["--file", str(image.path), "--ignorefile", str(ROOT / ".containerignore")]
            words += [f"--secret=id={name},src={path}" for name, path in secrets.items()]
            words += [f"--build-arg={key}={value}" for key, value in arguments.items()]
            self.run(*words, str(ROOT))
        with replacing(target) as staged, tempfile.TemporaryDirectory(dir=self._home) as layout:
            self.run("push", tag, f"oci:{layout}/image:latest")
            pack(Path(layout) / "image", staged, reference)
        prune(image, target)

    def _pull(self, archive: Path, tag: str) -> None:
        if self._call("inspect", "--type", "image", tag).returncode != 0:
            found = self.run("pull", "--quiet", f"oci-archive:{archive}").split()
            self.run("tag", found[-1], tag)

    def inside(self, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """A command among the unpacked programs, and what it wrote.

        buildah starts itself anew without its environment, so that a variable could not name its libraries. So they
        seem to lie among the machine's own, in a mount namespace that ends with the command.
        """
        (libraries,) = (path.parent for path in self._tools.glob("usr/lib/*/libgpgme.so.11"))
        place = f"/{libraries.relative_to(self._tools)}"
        found = ["unshare", "--mount", "--propagation", "private", "--", "sh", "-c", ENTER, str(libraries), place]
        environment = os.environ | {
            "PATH": f"{self._tools}/usr/bin:{os.environ.get('PATH', '')}:/usr/sbin:/usr/bin:/sbin:/bin",
            "CONTAINERS_REGISTRIES_CONF": str(self._tools / REGISTRIES),
            "TMPDIR": str(self._home),  # layers pass through it, and /tmp may be small
        }
        return subprocess.run(
            [*found, *command], env=environment, capture_output=True, text=True, check=False, timeout=BUILD_TIMEOUT_S
        )

    def run(self, *words: str) -> str:
        """buildah with these words; what it wrote."""
        done = self._call(*words)
        if done.returncode != 0:
            last = " / ".join(line.strip() for line in done.stderr.strip().splitlines()[-6:])
            raise BuildError(f"`buildah {words[0]}` failed: {last}")
        return done.stdout

    def _call(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.inside(self.command(*words))

    def command(self, *words: str) -> list[str]:
        """buildah's command line, for `inside`."""
        store = ["--root", str(self._home / "store"), "--runroot", str(self._home / "run")]
        trusting = [f"--signature-policy={self._tools / POLICY}"] if words[0] in READERS else []
        return ["buildah", *store, "--storage-driver", "overlay", words[0], *trusting, *words[1:]]

    def prepare(self) -> None:
        """Unpacks buildah and runc, unless that was done."""
        if self._tools.exists():
            return
        self._say("unpacking Debian's buildah and runc into the cache")
        with replacing(self._tools) as staged, tempfile.TemporaryDirectory(prefix="syncgroup-debs-") as debs:
            for name in base.MERGED:
                (staged / "usr" / name).mkdir(parents=True)
                (staged / name).symlink_to(f"usr/{name}")
            archive = Archive(self._home / "apt")
            archive.download(PROGRAMS, Path(debs))
            for name in LIBRARIES:
                archive.try_download(name, Path(debs))
            for deb in sorted(Path(debs).glob("*.deb")):
                debian.unpack(deb, staged)
            (staged / POLICY).write_text(TRUST)
            (staged / REGISTRIES).write_text("")


def prune(image: Image, newest: Path) -> None:
    """Removes archives of an image that older checkouts left, the oldest first."""
    found = [path for path in newest.parent.glob(f"{image.name}-*.tar") if path != newest]
    for path in sorted(found, key=lambda path: path.stat().st_mtime, reverse=True)[KEPT - 1 :]:
        path.unlink()


def pack(layout: Path, target: Path, reference: str) -> None:
    """An OCI layout as an archive that containerd imports under a name of ours."""
    index = json.loads((layout / "index.json").read_text())
    (entry,) = index["manifests"]
    entry["annotations"] = {
        "io.containerd.image.name": reference,
        "org.opencontainers.image.ref.name": reference.rpartition(":")[2],
    }
    (layout / "index.json").write_text(json.dumps(index))
    with tarfile.open(target, "w") as archive:
        for path in _ordered(layout):
            archive.add(path, str(path.relative_to(layout)), recursive=False)


def _ordered(layout: Path) -> Sequence[Path]:
    return sorted(path for path in layout.rglob("*") if path.is_file())
