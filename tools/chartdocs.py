"""Writes the tables of a chart's README from its values and their schema: `python -m tools.chartdocs CHART [--check]`.

A value's meaning stands once, in the comment above it that begins with `# --`. A value without such a comment is a
fault, unless all that it holds has them. Settings have no defaults of the chart's own: their table comes from the
schema's descriptions. Knows nothing of Helm.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tools.errors import ToolError
from tools.marked import filled

MARK = "# -- "
TOOL = "python -m tools.chartdocs"


@dataclass(frozen=True)
class Value:
    """One line of the table."""

    name: str
    default: str
    meaning: str


def values_of(text: str) -> list[Value]:
    """Every documented value of a values.yaml, in its order; raises ToolError for one that nothing is said of."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    if not isinstance(root, yaml.MappingNode):
        raise ToolError("values.yaml holds no values")
    return list(_walk(root, "", text.splitlines()))


def _walk(node: yaml.MappingNode, prefix: str, lines: Sequence[str]) -> Iterator[Value]:
    for key, value in node.value:
        name = prefix + str(key.value)
        meaning = _comment_above(lines, key.start_mark.line)
        if meaning is not None:
            yield Value(name, _default(value), meaning)
        elif isinstance(value, yaml.MappingNode) and value.value:
            yield from _walk(value, f"{name}.", lines)
        else:
            raise ToolError(f"values.yaml says nothing of {name}: put a comment that begins with {MARK!r} above it")


def _comment_above(lines: Sequence[str], number: int) -> str | None:
    above = lines[number - 1].strip() if number else ""
    return above.removeprefix(MARK) if above.startswith(MARK) else None


def _default(node: yaml.Node) -> str:
    value = yaml.safe_load(yaml.serialize(node))
    return json.dumps(value, ensure_ascii=False)


def settings_of(schema: Mapping[str, Any], path: str = "settings") -> Iterator[tuple[str, str, str]]:
    """Name, range and meaning of what an object of the schema may hold."""
    for name, entry in schema["properties"].items():
        full = f"{path}.{name}"
        if "properties" in entry:
            yield from settings_of(entry, full)
        elif "description" not in entry:
            raise ToolError(f"values.schema.json says nothing of {full}: give it a description")
        else:
            yield full, _range(entry), entry["description"]


def _range(entry: Mapping[str, Any]) -> str:
    kind = entry.get("type", "number")
    return f"{kind}, at least {entry['minimum']}" if "minimum" in entry else str(kind)


def tables(values_text: str, schema: Mapping[str, Any]) -> dict[str, str]:
    """The tables by the names that the README has for them."""
    definitions = schema.get("definitions", {})
    rows = [f"| `{one.name}` | `{one.default}` | {one.meaning} |" for one in values_of(values_text)]
    settings = settings_of(_resolved(schema["properties"]["settings"], definitions))
    further = [f"| `{name}` | {kind} | {meaning} |" for name, kind, meaning in settings]
    return {
        "values": "\n".join(["| value | default | meaning |", "|---|---|---|", *rows]),
        "settings": "\n".join(["| value | type | meaning |", "|---|---|---|", *further]),
    }


def _resolved(entry: Any, definitions: Mapping[str, Any]) -> Any:
    """The entry with what it refers to by `allOf` put in its place."""
    if not isinstance(entry, dict):
        return entry
    found = {key: _resolved(value, definitions) for key, value in entry.items() if key != "allOf"}
    for part in entry.get("allOf", []):
        found = definitions[part["$ref"].rsplit("/", 1)[1]] | found
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the tables, or with --check only compare."""
    parser = argparse.ArgumentParser(prog=TOOL, description=__doc__)
    parser.add_argument("chart", type=Path)
    parser.add_argument("--check", action="store_true", help="exit 1 where the README differs")
    options = parser.parse_args(arguments)
    target = options.chart / "README.md"
    try:
        schema = json.loads((options.chart / "values.schema.json").read_text(encoding="utf-8"))
        made = tables((options.chart / "values.yaml").read_text(encoding="utf-8"), schema)
        before = target.read_text(encoding="utf-8")
        after = filled(before, made, TOOL)
    except ToolError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    if not options.check:
        target.write_text(after, encoding="utf-8")
    elif before != after:
        sys.stderr.write(f"error: {target} is not what the values say; run `{TOOL}`\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
