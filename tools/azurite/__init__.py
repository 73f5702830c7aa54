"""Azurite, Microsoft's emulator of Azure's blob storage, for the tests of the object store.

`python -m tools.azurite` installs it with npm into the cache, in the versions and with the hashes of the lock file
beside this one; tests without it skip. Knows nothing of the product.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from pathlib import Path
from typing import Final

from tools.cache import cache_root, exclusive, platform_tag, replacing
from tools.errors import BuildError, HostError

HERE: Final = Path(__file__).parent
PROGRAM: Final = "node_modules/azurite/dist/src/blob/main.js"
INSTALL_S: Final = 1800


def version() -> str:
    """The release that is pinned."""
    return str(json.loads((HERE / "package.json").read_text())["dependencies"]["azurite"])


def installed_at() -> Path:
    """Where the cache keeps the server's script, whether or not it was installed; `node` runs it."""
    digest = hashlib.sha256(b"".join((HERE / name).read_bytes() for name in ("package.json", "package-lock.json")))
    folder = cache_root() / "tools" / platform_tag() / f"azurite-{version()}-{digest.hexdigest()[:10]}"
    return folder / PROGRAM


def node() -> str | None:
    """The Node.js of this machine; None: there is none."""
    return shutil.which("node")


def install() -> Path:
    """Installs it where it is missing; raises BuildError, HostError."""
    script = installed_at()
    npm = shutil.which("npm")
    if npm is None or node() is None:
        raise HostError("Node.js and npm are not on this machine; install Node.js 20 or later, then run this again.")
    folder = script.parents[len(Path(PROGRAM).parts) - 1]
    with exclusive(folder.with_name(f"{folder.name}.lock")):
        if not script.exists():
            with replacing(folder) as staged:
                staged.mkdir()
                for name in ("package.json", "package-lock.json"):
                    shutil.copy(HERE / name, staged / name)
                _run([npm, "ci", "--omit=dev", "--ignore-scripts", "--no-audit", "--no-fund"], staged)
    return script


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=INSTALL_S)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise BuildError(f"npm could not install Azurite: {said[-1] if said else 'it says nothing'}")
