"""Makes the virtual environment: uv if it is missing, .venv, the pinned packages, this project in development mode.

Runs on the system's Python before anything is installed, so: standard library only. Does nothing when nothing changed.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a file, before the project is installed

from tools.cache import cache_root, platform_tag, replacing
from tools.errors import BuildError, ToolError, sentence_for

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".venv"
STAMP = VENV / ".complete"
PINS = ROOT / "requirements" / "dev.txt"
UV_PIN = ROOT / "requirements" / "bootstrap-uv.txt"
MIN_PYTHON = (3, 11)
NO_NETWORK = ("Could not connect", "error sending request", "dns error", "NewConnectionError", "network was disabled",
              "Could not find a version", "Failed to fetch")  # fmt: skip


def fingerprint() -> str:
    """Changes whenever the environment must be brought up to date."""
    digest = hashlib.sha256(sys.version.encode())
    for path in (PINS, ROOT / "pyproject.toml"):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def uv() -> str:
    """uv from PATH, otherwise installed with pip into the cache."""
    found = shutil.which("uv")
    if found:
        return found
    version = UV_PIN.read_text().split()[0].replace("==", "-")
    home = cache_root() / "uv" / platform_tag() / version
    program = home / "bin" / "uv"
    if not program.exists():
        _say(f"uv is not on this machine: installing {version} with pip")
        with replacing(home) as staged:
            command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            command += ["--no-deps", "--require-hashes", "--target", str(staged), "-r", str(UV_PIN)]
            _run(command, "uv is missing and could not be installed with pip")
    return str(program)


def main() -> int:
    """Bring .venv up to date."""
    if sys.version_info < MIN_PYTHON:
        sys.stderr.write(f"error: Python 3.11 or newer is needed, this is {sys.version.split()[0]}.\n")
        return 2
    try:
        if STAMP.exists() and STAMP.read_text() == fingerprint():
            return 0
        started = time.monotonic()
        program = uv()
        STAMP.unlink(missing_ok=True)
        if not (VENV / "bin" / "python").exists():
            _say("making .venv")
            _remove_leftovers()
            _run([program, "venv", "--quiet", "--python", sys.executable, str(VENV)], "no .venv could be made")
        python = ["--python", str(VENV / "bin" / "python")]
        _say("installing the pinned packages of requirements/dev.txt")
        _run([program, "pip", "sync", "--quiet", "--require-hashes", *python, str(PINS)], "packages are missing")
        editable = ["--quiet", "--no-deps", "--no-build-isolation", "--editable", str(ROOT)]
        _run([program, "pip", "install", *python, *editable], "the project could not be installed")
        STAMP.write_text(fingerprint())
        _say(f".venv is ready ({time.monotonic() - started:.0f} s)")
    except ToolError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    except OSError as error:
        sys.stderr.write(f"error: {sentence_for(error)}\n")
        return 2
    return 0


def _remove_leftovers() -> None:
    """Clear a .venv without an interpreter: uv makes none over a folder that is not an environment.

    Such a folder is the rule on a new machine: the Makefile keeps bytecode in .venv, and pip, which brings uv, writes
    the first of it.
    """
    if VENV.is_symlink():
        VENV.unlink()
    elif VENV.exists():
        shutil.rmtree(VENV)


def _run(command: list[str], sentence: str) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        words = done.stderr.strip() or done.stdout.strip() or "no reason was given"
        if "No space left" in words:
            raise BuildError(f"{sentence}: the disk is full; free about 2 GB.")
        if "No module named pip" in words:
            raise BuildError(f"{sentence}: this Python has no pip; install python3-pip, or uv by hand.")
        if any(mark in words for mark in NO_NETWORK):
            raise BuildError(f"{sentence}: PyPI cannot be reached; connect this machine, then run the command again.")
        raise BuildError(f"{sentence}: " + " / ".join(line.strip() for line in words.splitlines()[-4:]))


def _say(text: str) -> None:
    sys.stderr.write(f"  {text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
