"""The rules that reviewers of Kubernetes APIs check, over the CRDs as they are on disk."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
import yaml

from sync_runtime.contract.patterns import WORDS
from tests.unit.contract.samples import CRDS_DIR

MAX_CRD_BYTES = 200 * 1024
MAX_DEFAULT_COLUMNS = 7
MAX_EXACT_INTEGER = 2**53

Schema = dict[str, Any]
CRDS = {path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted(CRDS_DIR.glob("*.yaml"))}

# Names that the API fixed without a unit; their description says which one it is.
UNIT_IN_DESCRIPTION = {"maxStaleness": "Versions", "anchorEvery": "Versions"}


class Node(NamedTuple):
    """One schema of a CRD."""

    path: str
    name: str
    schema: Schema


def walk(schema: Schema, path: str = "", name: str = "") -> Iterator[Node]:
    yield Node(path, name, schema)
    for key, inner in schema.get("properties", {}).items():
        if (path, key) != ("", "metadata"):  # Kubernetes' own
            yield from walk(inner, f"{path}.{key}", key)
    for key in ("items", "additionalProperties"):
        if key in schema:
            yield from walk(schema[key], f"{path}[]", name)


def root_of(definition: dict[str, Any]) -> Schema:
    schema: Schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


NODES = [
    node._replace(path=f"{name}{node.path}") for name, definition in CRDS.items() for node in walk(root_of(definition))
]
FIELDS = [node for node in NODES if "." in node.path and not node.path.endswith("[]")]


def test_there_is_something_to_check() -> None:
    assert set(CRDS) == {"syncgroups", "syncclusters"}
    assert len(FIELDS) > 100


@pytest.mark.parametrize("name", CRDS)
def test_a_crd_is_small_enough_for_client_side_apply(name: str) -> None:
    assert (CRDS_DIR / f"{name}.yaml").stat().st_size < MAX_CRD_BYTES


def test_every_field_is_described_in_a_sentence() -> None:
    assert [node.path for node in FIELDS if not re.fullmatch("[A-Z0-9].*[.]", node.schema.get("description", ""))] == []


def test_every_value_has_exactly_one_kind_and_it_is_no_fraction() -> None:
    allowed = {"object", "array", "string", "integer", "boolean"}
    kinds = [(node.path, node.schema.get("type"), "x-kubernetes-int-or-string" in node.schema) for node in NODES]
    assert [(path, kind) for path, kind, either in kinds if (kind not in allowed) != either] == []


def test_integers_are_exact_in_every_json_reader_and_their_format_fits() -> None:
    for node in NODES:
        if node.schema.get("type") == "integer":
            low, high = node.schema["minimum"], node.schema["maximum"]
            assert -MAX_EXACT_INTEGER < low <= high < MAX_EXACT_INTEGER, node.path
            assert node.schema["format"] == ("int32" if high < 2**31 else "int64"), node.path


def test_every_list_says_how_it_merges_and_how_long_it_gets() -> None:
    for node in NODES:
        if node.schema.get("type") == "array":
            kind = node.schema.get("x-kubernetes-list-type")
            assert kind in ("map", "set", "atomic"), node.path
            assert "maxItems" in node.schema, node.path
            if kind == "map":
                keys = node.schema["x-kubernetes-list-map-keys"]
                item = node.schema["items"]
                given = {*item["required"], *(key for key in keys if "default" in item["properties"][key])}
                assert set(keys) <= given, f"{node.path}: a key may be absent"


def test_text_and_maps_have_a_largest_size() -> None:
    for node in NODES:
        if node.schema.get("type") == "string" and "enum" not in node.schema:
            assert "maxLength" in node.schema, node.path
        if node.schema.get("type") == "object" and "properties" not in node.schema:
            assert "maxProperties" in node.schema, node.path


def test_enums_are_camel_case() -> None:
    words = [word for node in NODES for word in node.schema.get("enum", [])]
    assert len(words) > 20
    assert [word for word in words if not re.fullmatch("[A-Z][A-Za-z]*", word)] == []


def test_no_field_is_nullable_and_a_default_means_optional() -> None:
    for node in NODES:
        assert "nullable" not in node.schema, node.path
        for name, inner in node.schema.get("properties", {}).items():
            assert not ("default" in inner and name in node.schema.get("required", [])), f"{node.path}.{name}"


def test_names_follow_the_conventions() -> None:
    for node in FIELDS:
        assert re.fullmatch("[a-z][A-Za-z0-9]*", node.name), node.path
        assert not node.name.endswith(("Reference", "Timestamp", "Phase", "phase")), node.path
        if node.name.endswith("Ref"):
            assert node.schema["type"] == "object", node.path
        assert node.name.endswith("Time") == (node.schema.get("format") == "date-time"), node.path


def test_durations_and_sizes_are_integers_with_their_unit_in_their_name() -> None:
    suspicious = re.compile(
        "(?i)duration|interval|timeout|grace|latency|delay|rtt|size$|memory|rate|loss|utili[sz]ation"
    )
    units = re.compile("Seconds|Millis|Micros|Bytes|bytes|BitsPerSecond|Ppm|Percent|PerHour")
    for node in FIELDS:
        if suspicious.search(node.name) and node.name != "size":  # pods per member
            assert units.search(node.name), node.path
        if units.search(node.name):
            assert node.schema["type"] in ("integer", "object"), node.path


@pytest.mark.parametrize("name", UNIT_IN_DESCRIPTION)
def test_a_count_whose_name_has_no_unit_says_it_in_its_description(name: str) -> None:
    found = [node.schema["description"] for node in FIELDS if node.name == name]
    assert found
    assert all(text.startswith(UNIT_IN_DESCRIPTION[name]) for text in found)


def test_only_pod_templates_are_opaque_and_they_are_objects() -> None:
    opaque = [node for node in NODES if node.schema.get("x-kubernetes-preserve-unknown-fields")]
    assert {node.path for node in opaque} == {
        f"syncgroups.spec.{role}.template.{part}" for role in ("trainer", "rollouts[]") for part in ("metadata", "spec")
    }
    assert all(node.schema["type"] == "object" for node in opaque)


def has_bare_alternative(pattern: str) -> bool:
    """Whether a `|` stands outside all parentheses, where it would cut the anchors apart."""
    depth = 0
    for character in re.sub(r"\\.|\[[^]]*\]", "", pattern):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "|" and depth == 0:
            return True
    return False


def test_patterns_mean_the_same_to_both_judges_and_have_words() -> None:
    patterns = {node.schema["pattern"] for node in NODES if "pattern" in node.schema}
    assert patterns <= set(WORDS)
    for pattern in WORDS:
        assert pattern.startswith("^"), pattern
        assert pattern.endswith("$"), pattern
        assert not re.search(r"\\[dwsbDWSBZA]|\(\?", pattern), pattern
        assert not has_bare_alternative(pattern), pattern


@pytest.mark.parametrize("name", CRDS)
def test_columns_are_few_and_point_at_fields_that_exist(name: str) -> None:
    columns = CRDS[name]["spec"]["versions"][0]["additionalPrinterColumns"]
    assert len([column for column in columns if column.get("priority", 0) == 0]) <= MAX_DEFAULT_COLUMNS
    paths = {node.path.removeprefix(name) for node in NODES if node.path.startswith(name)}
    for column in columns:
        path = re.sub(r"\[\?\(@[.]type=='[A-Za-z]+'\)\]", "[]", column["jsonPath"])
        assert path in paths or path == ".metadata.creationTimestamp", column


@pytest.mark.parametrize("name", CRDS)
def test_a_crd_has_a_status_subresource_and_is_structural_at_the_top(name: str) -> None:
    version = CRDS[name]["spec"]["versions"][0]
    assert version["subresources"] == {"status": {}}
    assert set(root_of(CRDS[name])["properties"]) == {"apiVersion", "kind", "metadata", "spec", "status"}


def test_every_rule_has_a_sentence_of_its_own_and_points_at_a_field() -> None:
    for node in NODES:
        for rule in node.schema.get("x-kubernetes-validations", []):
            assert len(rule["message"]) >= 20, rule
            assert rule["reason"] in ("FieldValueInvalid", "FieldValueForbidden", "FieldValueRequired"), rule
            target = node.schema
            for step in rule.get("fieldPath", "").split(".")[1:]:
                target = target["properties"][step]
