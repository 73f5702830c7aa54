from __future__ import annotations

import io
from pathlib import Path

import pytest
import yaml

from syncgroup import cli
from tests.unit.contract.samples import (
    BAD_EXAMPLES,
    EXAMPLES,
    STALLED_EXAMPLES,
    minimal_cluster,
    minimal_group,
    pinned_messages,
)


def validate(capsys: pytest.CaptureFixture[str], *files: object) -> tuple[int, list[str], list[str]]:
    """Exit code, lines of output, lines of complaint."""
    code = cli.main(["validate", *map(str, files)])
    captured = capsys.readouterr()
    return code, captured.out.splitlines(), captured.err.splitlines()


def write(path: Path, *documents: object) -> Path:
    path.write_text(yaml.safe_dump_all(documents), encoding="utf-8")
    return path


def test_examples_are_valid(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = validate(capsys, *EXAMPLES)
    assert (code, err) == (0, [])
    assert len(out) == len(EXAMPLES)
    assert out[0] == f"{EXAMPLES[0]}: SyncGroup external-endpoint is valid"


def test_examples_that_stall_are_valid_for_only_a_cluster_can_judge_them(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = validate(capsys, *STALLED_EXAMPLES)
    assert (code, err) == (0, [])
    assert sum(": SyncGroup " in line for line in out) == len(STALLED_EXAMPLES) >= 15


@pytest.mark.parametrize("path", BAD_EXAMPLES, ids=lambda path: path.stem)
def test_a_bad_example_gets_one_sentence(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = validate(capsys, path)
    assert (code, out) == (2, [])
    (line,) = err
    assert line.startswith(f"{path}: Sync")
    assert pinned_messages(path).contract in line


def test_every_document_of_every_file_is_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = minimal_group()
    broken["metadata"]["namespace"] = "research"
    broken["spec"]["rollouts"][0]["replicas"] = -1
    broken["spec"]["suspend"] = "no"
    path = write(tmp_path / "all.yaml", broken, minimal_cluster())
    code, out, err = validate(capsys, path, tmp_path / "missing.yaml")
    assert code == 2
    assert out == [f"{path}: SyncCluster frankfurt is valid"]
    assert err == [
        f'{path}: SyncGroup research/grpo: spec.suspend: must be true or false, not "no"',
        f"{path}: SyncGroup research/grpo: spec.rollouts[0].replicas: must be at least 0",
        f"{tmp_path}/missing.yaml cannot be read: No such file or directory",
    ]


def test_one_bad_file_among_good_ones_decides_the_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert validate(capsys, EXAMPLES[0], BAD_EXAMPLES[0], EXAMPLES[1])[0] == 2


def test_documents_for_others_are_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}}
    path = write(tmp_path / "a.yaml", secret, None, minimal_cluster())
    code, out, _ = validate(capsys, path)
    assert code == 0
    assert out == [
        f"{path}: 1 documents of other kinds were not looked at",
        f"{path}: SyncCluster frankfurt is valid",
    ]
    code, _, err = validate(capsys, write(tmp_path / "b.yaml", secret))
    assert (code, err) == (2, [f"{tmp_path}/b.yaml: holds no SyncGroup or SyncCluster"])


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        ({**minimal_group(), "apiVersion": "v1"}, "apiVersion: must be syncgroup.dev/v1alpha1, not 'v1'"),
        ({**minimal_group(), "kind": "SyncGruop"}, "kind: must be SyncGroup or SyncCluster, not 'SyncGruop'"),
        ([1], "must be an object with apiVersion, kind and spec"),
        ({"kind": "SyncGroup", "metadata": 7}, "apiVersion: must be syncgroup.dev/v1alpha1, not None"),
    ],
)
def test_a_document_that_is_meant_for_us_but_misspelled_is_refused(
    document: object, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = validate(capsys, write(tmp_path / "a.yaml", document))
    assert code == 2
    assert err[0].endswith(sentence)


def test_a_list_is_unpacked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    items = {"apiVersion": "v1", "kind": "List", "items": [minimal_group(), minimal_cluster()]}
    code, out, _ = validate(capsys, write(tmp_path / "a.yaml", items))
    assert (code, len(out)) == (0, 2)


def test_standard_input_is_a_file_too(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(yaml.safe_dump(minimal_group())))
    assert validate(capsys, "-")[:2] == (0, ["-: SyncGroup grpo is valid"])


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        pytest.param("a: [", "is not YAML: line 1: expected the node content", id="cut short"),
        pytest.param("a: 1\nb: 2\na: 3\n", "is not YAML: line 3: a is given twice", id="key twice"),
        pytest.param("a: .inf", "is not YAML: line 1: a number must be finite", id="infinite"),
        pytest.param("? [1]\n: 2", "is not YAML: line 1: a key must be text", id="list as key"),
        pytest.param("a: !!python/object:os.system x", "could not determine a constructor for the tag", id="object"),
        pytest.param("[" * 200, "is not YAML: line 1: nested deeper than 100 levels", id="deeply nested"),
        pytest.param("a: " + "9" * 5000, "cannot be read: Exceeds the limit", id="a number of 5000 digits"),
        pytest.param("", "holds no SyncGroup or SyncCluster", id="empty"),
    ],
)
def test_text_that_is_no_manifest_ends_in_one_sentence(
    text: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(text, encoding="utf-8")
    code, _, err = validate(capsys, path)
    assert code == 2
    assert len(err) == 1
    assert sentence in err[0]


def test_bytes_and_folders_end_in_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    code, _, err = validate(capsys, tmp_path, tmp_path / "bytes")
    assert code == 2
    assert err == [f"{tmp_path} cannot be read: Is a directory", f"{tmp_path}/bytes is not UTF-8 text"]
