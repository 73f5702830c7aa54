"""Reads YAML the way kubectl does, so that a file means the same offline and on the API server.

YAML has many dialects. kubectl's takes `y`, `yes`, `on` for booleans, leaves dates as text, knows no base-60 numbers
and turns `1.0` into 1. A key that is given twice is refused here: kubectl keeps one of the two in silence.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from syncgroup.errors import CommandError

STANDARD_INPUT = "-"

_MERGE_TAG = "tag:yaml.org,2002:merge"
_MAX_DEPTH = 100
"""Far beyond any manifest, and well before the parser runs out of stack."""

_BOOLEANS = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
}


class Document(NamedTuple):
    """One document of a file."""

    source: str
    content: Any


class _KubectlLoader(yaml.SafeLoader):
    """A SafeLoader with kubectl's idea of plain scalars."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 PyYAML's own protocol

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise yaml.composer.ComposerError(None, None, f"nested deeper than {_MAX_DEPTH} levels", self.get_mark())
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        self._refuse_duplicates(node)
        self.flatten_mapping(node)  # keys of `<<` come first, so that the mapping's own ones win
        return {self._key_text(key): self.construct_object(value, deep=True) for key, value in node.value}

    def _refuse_duplicates(self, node: yaml.MappingNode) -> None:
        seen: set[str] = set()
        for key_node, _ in node.value:
            if key_node.tag == _MERGE_TAG:
                continue
            key = self._key_text(key_node)
            if key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"{key} is given twice", key_node.start_mark)
            seen.add(key)

    def _key_text(self, node: yaml.Node) -> str:
        key = self.construct_object(node, deep=True)
        if isinstance(key, bool):
            return str(key).lower()
        if isinstance(key, str | int):
            return str(key)
        raise yaml.constructor.ConstructorError(None, None, "a key must be text", node.start_mark)

    def construct_whole_or_fraction(self, node: yaml.ScalarNode) -> int | float:
        text = self.construct_scalar(node).replace("_", "")
        number = math.inf if text.lower().endswith(("inf", "nan")) else float(text)
        if not math.isfinite(number):
            raise yaml.constructor.ConstructorError(None, None, "a number must be finite", node.start_mark)
        return int(number) if number.is_integer() else number

    def construct_whole(self, node: yaml.ScalarNode) -> int:
        text = self.construct_scalar(node).replace("_", "")
        digits = text.lstrip("+-")
        # A leading zero alone means base 8, as in YAML 1.1.
        base = 8 if re.fullmatch("0[0-7]+", digits) else 0
        return int(text, base)

    def construct_boolean(self, node: yaml.ScalarNode) -> bool:
        return _BOOLEANS[self.construct_scalar(node)]


_KubectlLoader.add_constructor("tag:yaml.org,2002:map", _KubectlLoader.construct_mapping)
_KubectlLoader.add_constructor("tag:yaml.org,2002:bool", _KubectlLoader.construct_boolean)
_KubectlLoader.add_constructor("tag:yaml.org,2002:int", _KubectlLoader.construct_whole)
_KubectlLoader.add_constructor("tag:yaml.org,2002:float", _KubectlLoader.construct_whole_or_fraction)
# The first that matches wins, so the order matters: `0x10` and `010` are whole before anything is a fraction.
for _tag, _pattern, _first in (
    ("bool", "|".join(_BOOLEANS), "yYnNtTfFoO"),
    ("null", "~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("int", "[-+]?(0b[01_]+|0x[0-9a-fA-F_]+|0o?[0-7_]+|[1-9][0-9_]*|0)", "-+0123456789"),
    ("float", r"[-+]?([.][0-9]+|[0-9][0-9_]*([.][0-9]*)?)([eE][-+]?[0-9]+)?", "-+0123456789."),
    ("float", r"[-+]?[.](inf|Inf|INF)|[.](nan|NaN|NAN)", "-+."),
    ("merge", "<<", "<"),
):
    _KubectlLoader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern})$"), list(_first))


def read_documents(source: str) -> Iterator[Document]:
    """The documents of a file (`-`: standard input), empty ones left out and Lists unpacked."""
    text = _read_text(source)
    try:
        for content in yaml.load_all(text, Loader=_KubectlLoader):
            yield from _unpacked(source, content)
    except yaml.YAMLError as error:
        raise CommandError(f"{source} is not YAML: {_where_and_why(error)}") from error
    except ValueError as error:
        raise CommandError(f"{source} cannot be read: {error}") from error


def _unpacked(source: str, content: Any) -> Iterator[Document]:
    if isinstance(content, dict) and content.get("kind") == "List" and isinstance(content.get("items"), list):
        for item in content["items"]:
            yield Document(source, item)
    elif content is not None:
        yield Document(source, content)


def _read_text(source: str) -> str:
    try:
        return sys.stdin.read() if source == STANDARD_INPUT else Path(source).read_text(encoding="utf-8")
    except OSError as error:
        raise CommandError(f"{source} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise CommandError(f"{source} is not UTF-8 text") from error


def _where_and_why(error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"line {error.problem_mark.line + 1}: {error.problem}"
    return " ".join(str(error).split())
