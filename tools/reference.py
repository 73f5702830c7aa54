"""Writes the tables of docs/reference.md from the CRDs: `python -m tools.reference [--check] CRDS PAGE`.

The definitions are generated from the contract, so the page says what the API server enforces: every field with its
type, default and bounds, and every rule between fields in the words of its refusal. Knows YAML alone.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from tools.errors import ToolError
from tools.marked import filled

TOOL: Final = "python -m tools.reference"
HEAD: Final = ("| field | type | default | allowed | meaning |", "|---|---|---|---|---|")
PARTS: Final = ("spec", "status")
Schema = Mapping[str, Any]


def tables(definitions: Sequence[Schema]) -> dict[str, str]:
    """The page's parts by their names: fields of spec and status of every kind, and the rules."""
    found: dict[str, str] = {}
    for definition in definitions:
        kind = str(definition["spec"]["names"]["kind"]).lower()
        (version,) = definition["spec"]["versions"]
        schema = version["schema"]["openAPIV3Schema"]
        for part in PARTS:
            rows = [_row(path, entry, required=needed) for path, entry, needed in fields(schema["properties"][part])]
            found[f"{kind}-{part}"] = "\n".join([*HEAD, *rows])
        found[f"{kind}-rules"] = "\n".join(f"- {message}" for message in _unique(rules(schema)))
        columns = version["additionalPrinterColumns"]
        found[f"{kind}-columns"] = "\n".join(
            ["| column | meaning |", "|---|---|", *(_column(column) for column in columns)]
        )
    return found


def fields(schema: Schema, prefix: str = "") -> Iterator[tuple[str, Schema, bool]]:
    """Every field below a schema by its path, depth first; `[]` stands for the entries of a list."""
    needed = set(schema.get("required", ()))
    for name, entry in schema.get("properties", {}).items():
        path = f"{prefix}{name}"
        yield path, entry, name in needed
        inner, mark = (entry["items"], "[].") if entry.get("type") == "array" else (entry, ".")
        yield from fields(inner, f"{path}{mark}")


def rules(schema: Schema) -> Iterator[str]:
    """The words of every rule between fields, at any depth."""
    for rule in schema.get("x-kubernetes-validations", ()):
        yield str(rule["message"])
    for entry in (*schema.get("properties", {}).values(), *([schema["items"]] if "items" in schema else [])):
        yield from rules(entry)


def _row(path: str, entry: Schema, *, required: bool) -> str:
    if "description" not in entry:
        raise ToolError(f"the definition says nothing of {path}: give its field a description in the contract")
    default = "required" if required else _default(entry)
    return f"| `{path}` | {_type(entry)} | {default} | {_allowed(entry)} | {_escaped(entry['description'])} |"


def _type(entry: Schema) -> str:
    if entry.get("x-kubernetes-int-or-string"):
        return "integer or text"
    kind = str(entry.get("type", "any"))
    if kind == "array":
        return f"list of {_type(entry['items'])}s"
    if kind == "object" and "additionalProperties" in entry:
        return "map"
    return {"string": "text"}.get(kind, kind)


def _default(entry: Schema) -> str:
    """Defaults of objects follow from those of their fields."""
    if "default" not in entry or entry.get("properties"):
        return ""
    return f"`{json.dumps(entry['default'], ensure_ascii=False)}`"


def _allowed(entry: Schema) -> str:
    if "enum" in entry:
        return ", ".join(f"`{word}`" for word in entry["enum"])
    low, high = entry.get("minimum"), entry.get("maximum")
    if low is not None and high is not None:
        return f"{low} to {high}"
    if low is not None:
        return f"{low} or more"
    for name, unit in (("maxLength", "characters"), ("maxItems", "entries"), ("maxProperties", "entries")):
        if name in entry:
            return f"at most {entry[name]} {unit}"
    return ""


def _column(column: Schema) -> str:
    wide = " (with `-o wide`)" if column.get("priority") else ""
    return f"| `{column['name'].upper()}` | {_escaped(column['description'])}{wide} |"


def _escaped(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|")


def _unique(messages: Iterator[str]) -> list[str]:
    return list(dict.fromkeys(messages))


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the tables, or with --check only compare."""
    parser = argparse.ArgumentParser(prog=TOOL, description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit 1 where the page differs")
    parser.add_argument("crds", type=Path, help="folder of the definitions")
    parser.add_argument("page", type=Path)
    options = parser.parse_args(arguments)
    try:
        texts = [path.read_text(encoding="utf-8") for path in sorted(options.crds.glob("*.yaml"))]
        before = options.page.read_text(encoding="utf-8")
        after = filled(before, tables([yaml.safe_load(text) for text in texts]), TOOL)
    except (ToolError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    if not options.check:
        options.page.write_text(after, encoding="utf-8")
    elif before != after:
        sys.stderr.write(f"error: {options.page} is not what the definitions say; run `{TOOL}`\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
