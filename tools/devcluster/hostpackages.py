"""Brings `nft`, which kube-proxy runs, where the host has none: unpacked from Debian packages, without root.

kube-proxy talks to the kernel through this program only, and no package registry of a language holds it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tools import debian
from tools.cache import cache_root, exclusive, platform_tag, replacing
from tools.errors import HostError

SEARCH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Where system programs are; an ordinary user's PATH often lacks the sbin folders."""
PACKAGES = ("nftables", "libnftables1", "libnftnl11", "libmnl0", "libjansson4", "libgmp10", "libxtables12", "libedit2")
OPTIONAL = ("libbsd0", "libmd0", "libtinfo6", "libreadline8", "libreadline8t64")
WRAPPER = """\
#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
LD_LIBRARY_PATH="$here/libraries" exec "$here/nft.bin" "$@"
"""


def nft() -> Path:
    """The folder that holds a working `nft`; fetched once where the host has none."""
    found = shutil.which("nft", path=SEARCH)
    if found:
        return Path(found).parent
    folder = cache_root() / "host" / platform_tag() / "nftables"
    if not (folder / "nft").exists():  # asked before the lock: a whole cache may be someone else's, and read-only
        with exclusive(folder.parent / ".lock"):
            if not (folder / "nft").exists():
                _fetch(folder)
    return folder


def _fetch(folder: Path) -> None:
    if debian.why_impossible() is not None:
        raise HostError("the program `nft` is missing; install the package nftables.")
    sys.stderr.write("  `nft` is not on this machine: unpacking Debian's nftables into the cache\n")
    with replacing(folder) as staged:
        root, debs = staged / "root", staged / "debs"
        root.mkdir(parents=True)
        archive = debian.Archive(staged / "apt")
        archive.download(PACKAGES, debs)
        for name in OPTIONAL:
            archive.try_download(name, debs)
        for deb in sorted(debs.glob("*.deb")):
            debian.unpack(deb, root)
        programs = [path for path in (root / "usr/sbin/nft", root / "sbin/nft") if path.exists()]
        if not programs:
            raise HostError("Debian's nftables package holds no `nft`; install the package nftables.")
        shutil.copy2(programs[0], staged / "nft.bin")
        libraries = staged / "libraries"
        libraries.mkdir()
        for path in sorted(root.rglob("*.so*")):
            if path.is_file():  # follows the links that carry the sonames
                shutil.copy2(path, libraries / path.name)
        for used in (root, debs, staged / "apt"):
            shutil.rmtree(used, ignore_errors=True)
        (staged / "nft").write_text(WRAPPER)
        (staged / "nft").chmod(0o755)
        _try(staged / "nft")


def _try(program: Path) -> None:
    done = subprocess.run([str(program), "--version"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise HostError(f"Debian's `nft` does not run here ({reason}); install the package nftables.")
