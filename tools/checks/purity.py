"""`python -m tools.checks.purity`: modules under the contract of pure decisions take the time as an argument.

The contract `pure` of importlinter.toml sees imports, and `datetime` is a fine import for a type. This looks at
what the same modules do with it: reading a clock, asking for a random identifier, opening a file. It reads the list
of modules from there, follows import aliases, and does not follow calls into other modules (their imports are the
contract's business).
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from tools.checks import report
from tools.checks.files import parse_python, python_sources
from tools.checks.report import Finding
from tools.errors import ToolError

CONTRACT_ID = "pure"
SOURCE_FOLDERS = (Path(), Path("operator"))

# Whether called or handed on (`default_factory=datetime.now`), these read a clock or throw dice.
IMPURE_NAMES = frozenset(
    {"datetime.date.today", "uuid.uuid1", "uuid.uuid4", "uuid.uuid6", "uuid.uuid7", "uuid.getnode"}
    | {f"datetime.datetime.{name}" for name in ("now", "utcnow", "today")}
)
# On any object, since a clock that was handed in is still a clock.
IMPURE_METHODS = frozenset({"now", "utcnow", "today"})
IMPURE_BUILTINS = frozenset({"open", "input", "print", "breakpoint", "eval", "exec", "__import__"})


def check(root: Path) -> Iterator[Finding]:
    """Every impure call in a module that is declared pure."""
    modules = pure_modules(root / "importlinter.toml")
    for path, text in python_sources(root):
        if _is_pure(path, modules):
            yield from impure_uses(path, text)


def pure_modules(config: Path) -> list[str]:
    """The modules that importlinter.toml declares pure."""
    try:
        options = tomllib.loads(config.read_text(encoding="utf-8"))["tool"]["importlinter"]
    except (OSError, KeyError, tomllib.TOMLDecodeError) as error:
        raise ToolError(f"{config} cannot be read ({error!r}); it must hold [tool.importlinter]") from error
    for contract in options.get("contracts", ()):
        if contract.get("id") == CONTRACT_ID:
            return list(contract["source_modules"])
    raise ToolError(f"{config} has no contract with id {CONTRACT_ID!r}; name the pure modules there")


def impure_uses(path: Path, text: str) -> Iterator[Finding]:
    """Uses in one file of what a pure module must be given instead."""
    parsed = parse_python(path, text)
    bound = _imported_names(parsed)
    for node in ast.walk(parsed):
        if isinstance(node, ast.Attribute | ast.Name) and (name := _dotted(node, bound)) in IMPURE_NAMES:
            yield Finding(path, node.lineno, f"{name} in a pure module: take the value as an argument")
        elif isinstance(node, ast.Call) and (called := _impure_call(node, bound)):
            yield Finding(path, node.lineno, f"{called} in a pure module: take the value as an argument")


def _impure_call(node: ast.Call, bound: dict[str, str]) -> str | None:
    match node.func:
        case ast.Name(id=name) if name in IMPURE_BUILTINS and name not in bound:
            return f"{name}()"
        case ast.Attribute(attr="astimezone") if not node.args and not node.keywords:
            return ".astimezone() without a zone"
        case ast.Attribute(attr=name) if name in IMPURE_METHODS and _dotted(node.func, bound) not in IMPURE_NAMES:
            return f".{name}()"
    return None


def _imported_names(parsed: ast.AST) -> dict[str, str]:
    """Names bound by imports, with what they stand for."""
    bound: dict[str, str] = {}
    for node in ast.walk(parsed):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                bound[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                bound[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return bound


def _dotted(node: ast.expr, bound: dict[str, str]) -> str | None:
    """The full name of `a.b.c`, with the import behind `a` put in its place."""
    match node:
        case ast.Name(id=name):
            return bound.get(name)
        case ast.Attribute(value=value, attr=attribute):
            base = _dotted(value, bound)
            return f"{base}.{attribute}" if base else None
    return None


def _is_pure(path: Path, modules: list[str]) -> bool:
    for module in modules:
        for folder in SOURCE_FOLDERS:
            place = folder.joinpath(*module.split("."))
            if path == place.with_suffix(".py") or path.is_relative_to(place):
                return True
    return False


def main(arguments: list[str] | None = None) -> int:
    """Run as a command."""
    return report.run("purity", "Clocks, dice and files in modules that are declared pure.", check, arguments)


if __name__ == "__main__":
    sys.exit(main())
