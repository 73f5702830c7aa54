"""Which files the checks look at: what is in the repository or about to be, never what git ignores.

Knows git and the file system; knows nothing of what is checked.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tools.errors import ToolError

REPOSITORY = Path(__file__).parents[2]

# Without git (an unpacked source archive) nobody says what is ignored; these folders hold what tools leave behind.
LEFT_BEHIND = frozenset({".git", ".venv", ".hypothesis", "build", "dist", "__pycache__"})
LEFT_BEHIND_SUFFIXES = ("_cache", ".egg-info")


def repository_files(root: Path) -> list[Path]:
    """Tracked files and new ones that are not ignored, as paths below `root`.

    Where git is missing, or refuses (a checkout that belongs to somebody else), all files but the usual leftovers: the
    checks then see more, never less.
    """
    listed = _from_git(root)
    names = _from_walk(root) if listed is None else listed
    # A file that was removed but not yet from git's list is no longer anyone's business; nor is a link's target.
    return sorted(path for path in map(Path, names) if (root / path).is_file() and not (root / path).is_symlink())


def read_text(path: Path) -> str | None:
    """The text of a file, or None where it is not text."""
    try:
        text = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


def python_sources(root: Path) -> Iterator[tuple[Path, str]]:
    """Every Python file of the repository with its text."""
    for path in repository_files(root):
        if path.suffix == ".py" and (text := read_text(root / path)) is not None:
            yield path, text


def parse_python(path: Path, text: str) -> ast.Module:
    """The syntax tree of a file; a file that is not Python ends the check with a sentence."""
    try:
        return ast.parse(text, filename=str(path))
    except SyntaxError as error:
        raise ToolError(
            f"{path}:{error.lineno} is not valid Python ({error.msg}); mend it, then check again"
        ) from error


def _from_git(root: Path) -> list[str] | None:
    """What git lists, or None where it cannot; a folder below a checkout is not one."""
    if shutil.which("git") is None or not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    result = subprocess.run(command, capture_output=True, check=False)
    return os.fsdecode(result.stdout).split("\0")[:-1] if result.returncode == 0 else None


def _from_walk(root: Path) -> Iterator[str]:
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in LEFT_BEHIND and not name.endswith(LEFT_BEHIND_SUFFIXES)]
        for name in names:
            yield os.path.relpath(os.path.join(folder, name), root)
