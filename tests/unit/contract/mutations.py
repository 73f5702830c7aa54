"""Hypothesis strategies that break a document in one place, led by the CRD's own schema.

Many mutations leave the document valid after all, which is wanted: near misses on both sides of every border show
whether two judges agree. Whole numbers written as fractions (`1.0`) are left out: the API server takes them where no
rule reads the field, stores them as whole numbers, and kubectl never sends them; a test of its own pins that.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from tests.unit.contract.strategies import Document

Schema = dict[str, Any]

HOSTILE: list[Any] = [
    None, True, False, 0, 1, -1, 2**31 - 1, 2**31, 2**53 - 1, 2**53, 2**63, -(2**63), 1.5, -0.5, 1e300,
    "", "a", "A", "1", "true", "null", "a b", "a\n", "\n", "-a", "a-", "a.b", "a_b", "ä", "\u2028", "\x00", "local",
    [], {}, [None], [1], ["a", "a"], {"a": None}, {"a": 1}, {"a": "b"}, [{}],
]  # fmt: skip


@st.composite
def mutated(draw: st.DrawFn, documents: st.SearchStrategy[Document], schema: Schema) -> Document:
    """A document with one or two places broken, or nearly so."""
    document = copy.deepcopy(draw(documents))
    for _ in range(draw(st.integers(1, 2))):
        found = list(places(document["spec"], schema["properties"]["spec"]))
        if found:
            holder, key, here = draw(st.sampled_from(found))
            draw(_mutations(holder, key, here))
    return document


def places(value: Any, schema: Schema) -> Iterator[tuple[Any, Any, Schema]]:
    """Every place that a schema knows below a value, absent optional fields included: (holder, key, schema there)."""
    if isinstance(value, dict):
        for key, inner in schema.get("properties", {}).items():
            yield value, key, inner
            yield from places(value.get(key), inner)
        if "additionalProperties" in schema:
            for key in value:
                yield value, key, schema["additionalProperties"]
    elif isinstance(value, list) and "items" in schema:
        for index, item in enumerate(value):
            yield value, index, schema["items"]
            yield from places(item, schema["items"])


def border_documents(document: Document, schema: Schema) -> Iterator[tuple[str, Document]]:
    """The document with each field once set to every border value and to a value of each kind, one at a time."""
    kinds: list[Any] = [None, True, 1, "a", [], {}]
    seen: set[int] = set()
    changed = copy.deepcopy(document)
    for holder, key, here in list(places(changed["spec"], schema["properties"]["spec"])):
        if id(here) in seen:  # the same field of another item
            continue
        seen.add(id(here))
        before = copy.copy(holder)
        for value in (*borders(here), *kinds):
            holder[key] = copy.deepcopy(value)
            yield f"{key} = {str(value)[:60]!r} in {str(before)[:60]}", changed
            _restore(holder, before)


def _restore(holder: Any, before: Any) -> None:
    holder.clear()
    if isinstance(holder, list):
        holder.extend(before)
    else:
        holder.update(before)


@st.composite
def _mutations(draw: st.DrawFn, holder: Any, key: Any, schema: Schema) -> None:
    """Change one place."""
    present = isinstance(holder, list) or key in holder
    kinds = ["border", "hostile"] + (["remove", "unknown", "repeat"] if present else [])
    kind = draw(st.sampled_from(kinds))
    if kind == "remove":
        del holder[key]
    elif kind == "unknown" and isinstance(holder[key], dict):
        holder[key][draw(st.sampled_from(["unknown", "max_unavailable", "Name"]))] = draw(st.sampled_from([None, 1]))
    elif kind == "repeat" and isinstance(holder[key], list) and holder[key]:
        holder[key].append(copy.deepcopy(holder[key][0]))
    elif kind == "border" and (near := list(borders(schema))):
        holder[key] = draw(st.sampled_from(near))
    else:
        holder[key] = copy.deepcopy(draw(st.sampled_from(HOSTILE)))


def borders(schema: Schema) -> Iterator[Any]:
    """Values on and just beyond what a schema allows."""
    for bound in (schema.get("minimum"), schema.get("maximum")):
        if bound is not None:
            yield from (bound - 1, bound, bound + 1)
    for word in schema.get("enum", []):
        yield from (word, word.lower(), f"{word}x")
    if "maxLength" in schema:
        yield from (letter * (schema["maxLength"] + extra) for letter in ("a", "ä", "😀") for extra in (0, 1))
    if "maxProperties" in schema:
        yield from ({f"k{i}": "v" for i in range(schema["maxProperties"] + extra)} for extra in (0, 1))
    if schema.get("type") == "boolean":
        yield from (True, False, "true")
    if schema.get("type") == "array" and schema["items"].get("type") == "string":
        yield from ([f"10.0.0.{i}/32" for i in range(schema["maxItems"] + extra)] for extra in (0, 1))
