"""The project's Markdown pages: their headings, links and fenced blocks, as the readers of a repository see them.

A fenced `sh` block is run by a test; what is only shown is indented. The word after the language says where:

    ```sh runnable            in the checkout, no cluster
    ```sh runnable=cluster    against a control plane, with helm and kubectl
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).resolve().parents[2]
SKIPPED = frozenset({".git", ".venv", "node_modules", "build", "dist", ".pytest_cache"})
_FENCE = re.compile(r"^```([^\n`]*)\n(.*?)^```[ ]*$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!\\)!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^()\s]+)\)")


class Block(NamedTuple):
    """A fenced block."""

    page: Path
    number: int
    language: str
    mark: str
    """What stands behind the language."""
    text: str

    @property
    def name(self) -> str:
        """For people who read test results."""
        return f"{self.page.relative_to(REPOSITORY)}-{self.number}"


def pages() -> list[Path]:
    """Every page of the tree."""
    found = []
    for folder, below, files in os.walk(REPOSITORY):
        below[:] = [name for name in below if name not in SKIPPED]
        found += [Path(folder) / name for name in files if name.endswith(".md")]
    return sorted(found)


def blocks(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page, in order."""
    for number, found in enumerate(_FENCE.finditer(page.read_text(encoding="utf-8")), start=1):
        language, _, mark = found[1].strip().partition(" ")
        yield Block(page, number, language, mark.strip(), found[2])


def prose(page: Path) -> str:
    """The page without its blocks, fenced or in line: what looks like a link there is none."""
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    text = re.sub(r"^(?: {4}|\t)(?! *[-*|]).*$", "", text, flags=re.MULTILINE)
    return re.sub(r"`[^`\n]*`", "`", text)


def links(page: Path) -> list[str]:
    """Where a page's links and pictures lead."""
    return _LINK.findall(prose(page))


def anchors(page: Path) -> set[str]:
    """The anchors that a host makes of a page's headings."""
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    seen: Counter[str] = Counter()
    found = set()
    for heading in re.findall(r"^#{1,6} +(.+?) *#*$", text, re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        anchor = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        found.add(f"{anchor}-{seen[anchor]}" if seen[anchor] else anchor)
        seen[anchor] += 1
    return found


def run_block(block: Block, folder: Path, environment: Mapping[str, str], timeout_s: float) -> str:
    """Run a block as one shell script that ends at its first failure; its output. Raises AssertionError."""
    command = ["bash", "-euo", "pipefail", "-c", block.text]
    path = f"{Path(sys.executable).parent}{os.pathsep}{environment.get('PATH', os.environ['PATH'])}"
    python_path = f"{REPOSITORY}{os.pathsep}{REPOSITORY / 'operator'}"
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=timeout_s,
        env={**os.environ, **environment, "PATH": path, "PYTHONPATH": python_path},
    )  # fmt: skip
    assert done.returncode == 0, f"{block.name} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
    return done.stdout
