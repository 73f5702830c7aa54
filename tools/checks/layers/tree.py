"""The drawn tree of modules: what the design says will exist, as opposed to what exists today.

Pure: takes text and names, gives names. It knows neither import-linter nor the file system.

The drawing is indented text, one module a line, two spaces a step:

    sync_runtime
      codec            drawn with children: closed, every module inside must be drawn
        frame
      membership
        lease
        ...            left open: modules that are not drawn may stand here
      control          drawn without children: open
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator
from dataclasses import dataclass

OPEN_MARK = "..."
INDENT = "  "


class DrawingError(ValueError):
    """The drawing cannot be read; the message names the line and what to write instead."""


@dataclass(frozen=True)
class DrawnTree:
    """The modules of the drawing, and the packages that hold nothing but drawn modules."""

    modules: frozenset[str]
    closed: frozenset[str]

    def __contains__(self, module: str) -> bool:
        return module in self.modules

    def nearest(self, name: str) -> str | None:
        """The drawn module most like `name`, for a message about a slip of the pen."""
        return next(iter(difflib.get_close_matches(name, sorted(self.modules), n=1)), None)

    def undrawn(self, existing: Collection[str]) -> list[str]:
        """Existing modules that stand directly in a closed package and are not drawn."""
        return sorted(name for name in existing if parent_of(name) in self.closed and name not in self.modules)

    def absent(self, existing: Collection[str]) -> list[str]:
        """Drawn modules that do not exist yet; what lies below an absent one goes without saying."""
        missing = self.modules - set(existing)
        return sorted(name for name in missing if parent_of(name) not in missing)


def parent_of(module: str) -> str:
    """The package that holds a module; empty for a top-level one."""
    return module.rpartition(".")[0]


def is_inside(module: str, package: str) -> bool:
    """Whether `module` is `package` or lies below it."""
    return module == package or module.startswith(f"{package}.")


def parse(drawing: str) -> DrawnTree:
    """Read a drawing; raises DrawingError where it is not a tree of module names."""
    modules: set[str] = set()
    opened: set[str] = set()
    for parent, name in _rows(drawing):
        if name == OPEN_MARK:
            opened.add(parent)
            continue
        module = f"{parent}.{name}" if parent else name
        if module in modules:
            raise DrawingError(f"{module} is drawn twice; keep one of the lines")
        modules.add(module)
    closed = {parent_of(module) for module in modules} - opened - {""}
    return DrawnTree(modules=frozenset(modules), closed=frozenset(closed))


def _rows(drawing: str) -> Iterator[tuple[str, str]]:
    """Each line as (module it stands below, own name)."""
    above: list[str] = []
    for number, line in enumerate(drawing.splitlines(), start=1):
        name = line.strip()
        if not name:
            continue
        depth, odd = divmod(len(line) - len(line.lstrip(" ")), len(INDENT))
        if odd or depth > len(above):
            raise DrawingError(
                f"line {number} ({name}) is indented by too much or by half a step; two spaces are one step"
            )
        if name != OPEN_MARK and not name.isidentifier():
            raise DrawingError(f"line {number} ({name}) is not the name of a module; write one name a line")
        del above[depth:]
        yield ".".join(above), name
        above.append(name)
