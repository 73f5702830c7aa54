"""YAML as kubectl reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from syncgroup.manifests import read_documents
from tests.unit.cli.yaml_samples import SCALARS


def parsed(tmp_path: Path, text: str) -> list[Any]:
    path = tmp_path / "a.yaml"
    path.write_text(text, encoding="utf-8")
    return [document.content for document in read_documents(str(path))]


@pytest.mark.parametrize(("text", "value"), SCALARS)
def test_a_plain_scalar_means_what_it_means_to_kubectl(text: str, value: object, tmp_path: Path) -> None:
    (document,) = parsed(tmp_path, f"a: {text}")
    assert document == {"a": value}
    assert type(document["a"]) is type(value)


def test_keys_become_text(tmp_path: Path) -> None:
    assert parsed(tmp_path, "1: a\ntrue: b\nc: d") == [{"1": "a", "true": "b", "c": "d"}]


def test_anchors_and_merge_keys_work(tmp_path: Path) -> None:
    text = "base: &base {a: 1, b: 2}\nmore: {<<: *base, b: 3}\nlist: [*base]"
    assert parsed(tmp_path, text) == [{"base": {"a": 1, "b": 2}, "more": {"a": 1, "b": 3}, "list": [{"a": 1, "b": 2}]}]


def test_empty_documents_are_left_out(tmp_path: Path) -> None:
    assert parsed(tmp_path, "---\n---\na: 1\n---\n# nothing\n") == [{"a": 1}]


def test_json_is_yaml_too(tmp_path: Path) -> None:
    assert parsed(tmp_path, '{"a": [1, "b", null, true, 1.0]}') == [{"a": [1, "b", None, True, 1]}]
