from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from syncgroup import cli
from tests.unit.contract.samples import CRDS_DIR, EXAMPLES, minimal_cluster, minimal_group

FOUR_REGIONS = CRDS_DIR / "examples" / "four-regions.yaml"
SLOW = {
    "fromRegion": "us-east-1",
    "toCluster": "frankfurt",
    "toRegion": "eu-central-1",
    "capacityBitsPerSecond": 200_000_000,
    "rttMicros": 100_000,
    "lossPpm": 1000,
}


def explain(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """Exit code, output, complaints."""
    code = cli.main(["explain", *map(str, arguments)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def write(path: Path, *documents: object) -> Path:
    path.write_text(yaml.safe_dump_all(documents), encoding="utf-8")
    return path


@pytest.mark.parametrize("path", [one for one in EXAMPLES if one.stem != "synccluster"], ids=lambda path: path.stem)
def test_every_example_can_be_explained(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = explain(capsys, "-f", path)
    assert (code, err) == (0, "")
    assert out.startswith("SyncGroup ")
    assert "trainer in " in out


def test_seats_routes_links_and_limits_are_explained(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = explain(capsys, "-f", FOUR_REGIONS)
    for part in (
        "1 trainer, 22 members, 4 plans",
        "rollout west: 8 members in oregon/us-west-2; if node, capacity or region fails: oregon/us-west-1, then local/",
        "the trainer is dialled at trainer.four-regions.example.com:7443",
        "no relay: the trainer's own region dials it directly",
        "relays, so that the region receives every byte once: four-regions-eu-0-",
        "and 5 more dial four-regions-eu-0-",
        "link from local/us-east-1: Fast, 6 streams (2 to 48), buckets of 1 MiB (0.25 to 4)",
        "not measured yet, assumed 1 Gbit/s and 100 ms; fast until it is measured",
        "a member is lost 30 s after its last renewal; at most 3 are replaced at once and 40 in an hour",
        "its members are placed elsewhere after 1800 s",
    ):
        assert part in out


def test_measured_links_change_codec_streams_and_buckets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nowhere = {**SLOW, "toRegion": "moon"}
    links = write(tmp_path / "links.yaml", {"links": [SLOW, nowhere]})
    code, out, _ = explain(capsys, "-f", FOUR_REGIONS, "--links", links)
    assert code == 0
    assert "link from local/us-east-1: Tight, 48 streams (2 to 48), buckets of 0.25 MiB (0.25 to 4)" in out
    assert "measured 200 Mbit/s, 100 ms, 1000 ppm loss; tight: it is slow enough" in out
    assert "note: the file names frankfurt/moon, which is no place of this group" in out


def test_other_documents_of_the_file_are_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = minimal_group()
    other["metadata"] = {"name": "second", "namespace": "ml"}
    path = write(tmp_path / "all.yaml", minimal_cluster(), minimal_group(), {"kind": "Namespace"}, other)
    code, out, _ = explain(capsys, "-f", path)
    assert code == 0
    assert [line for line in out.splitlines() if line.startswith("SyncGroup")] == [
        "SyncGroup default/grpo: 1 trainer, 1 members, 2 plans",
        "SyncGroup ml/second: 1 trainer, 1 members, 2 plans",
    ]


def test_an_address_that_nobody_knows_is_said_to_be_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    group = minimal_group()
    group["spec"]["trainer"]["exposure"] = {"type": "NodePort"}
    group["spec"]["rollouts"][0]["cluster"] = "oregon"
    _, out, _ = explain(capsys, "-f", write(tmp_path / "group.yaml", group))
    assert "the trainer's address is not known yet: set spec.trainer.exposure.host" in out
    assert "dials nobody yet" in out


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ([minimal_cluster()], "holds no SyncGroup of syncgroup.dev/v1alpha1"),
        ([{**minimal_group(), "spec": {}}], "spec.trainer: is required"),
        ([[1, 2]], "must be an object with apiVersion, kind and spec"),
        ([], "holds no SyncGroup"),
    ],
    ids=["cluster", "invalid", "list", "empty"],
)
def test_a_bad_file_gets_a_sentence(
    content: list[object], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = explain(capsys, "-f", write(tmp_path / "group.yaml", *content))
    assert (code, out) == (2, "")
    assert sentence in err


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ({"links": [{**SLOW, "rttMicros": 0}]}, "links[0].rttMicros: must be at least 1"),
        ({"links": [{"fromRegion": "a"}]}, "links[0].toRegion: is required"),
        ({"link": []}, "link: is not a field here; did you mean links?"),
        ([SLOW], "must hold one document with `links:`"),
    ],
    ids=["range", "missing", "typo", "list"],
)
def test_a_bad_link_file_gets_a_sentence(
    content: object, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = explain(capsys, "-f", FOUR_REGIONS, "--links", write(tmp_path / "links.yaml", content))
    assert (code, out) == (2, "")
    assert sentence in err


def test_a_file_that_is_not_there_gets_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = explain(capsys, "-f", tmp_path / "none.yaml")
    assert code == 2
    assert "cannot be read: No such file or directory" in err


def test_a_store_is_explained_with_who_feeds_and_who_follows_it(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = explain(capsys, "-f", CRDS_DIR / "examples" / "object-store.yaml")
    assert (code, err) == (0, "")
    opened = "s3://my-weights/runs/grpo-8b, opened with a copy of Secret my-weights-credentials"
    assert f"puts every version into {opened}" in out
    assert f"follow {opened}" in out or f"follows {opened}" in out
    assert "the trainer's address is not known yet" not in out
    assert "dials nobody yet" not in out


def test_a_store_of_one_region_is_explained_beside_the_streams_of_another(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = explain(capsys, "-f", CRDS_DIR / "examples" / "store-for-one-region.yaml")
    assert (code, err) == (0, "")
    opened = "gs://my-weights/runs/grpo-8b, opened with a copy of Secret my-weights-credentials"
    home, streamed, stored = (
        out.partition(f"\n{place}:")[2].partition("\n\n")[0]
        for place in ("local/us-east-1", "local/us-west-2", "iowa/us-central1")
    )
    assert f"puts every version into {opened}" in home
    assert "the trainer is dialled at" in streamed
    assert "my-weights" not in streamed
    assert f"follows {opened}" in stored
    assert "trainer" not in stored.partition("link")[0]
