"""A rollout that only knows `from_pretrained`: its sidecar keeps a checkpoint folder level with the trainer."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from sync_runtime import Subscriber
from sync_runtime.errors import SyncError
from sync_runtime.offline.checkpoints import open_checkpoint
from sync_runtime.offline.served.copies import NOTE, read_note
from sync_runtime.offline.served.folder import CURRENT
from sync_runtime.sidecar.rollout import Rollout
from tests.support.children import REPOSITORY
from tests.support.groups import TRAINER, wait_for
from tests.support.inside import InsideGroup
from tests.support.language_models import tiny_llama
from tests.support.served_runs import LEAF, SHARD, Run, content, same, saved, train

pytestmark = pytest.mark.timeout(120)
SWAPS = 30


@pytest.fixture
def group(tmp_path: Path) -> Iterator[InsideGroup]:
    with InsideGroup(tmp_path, [TRAINER, LEAF], ringBytes=1 << 20) as made:
        yield made


@pytest.mark.parametrize(("tied", "engine"), [(True, "transformers"), (True, "module"), (False, "transformers")])
def test_every_version_is_loaded_with_the_trainers_bits(
    tmp_path: Path, group: InsideGroup, tied: bool, engine: str
) -> None:
    run = Run(tmp_path, group, tied=tied, engine=engine)
    group.start("eu-0")
    for step in (1, 2, 3):
        run.reaches(run.publish(step))
        assert same(run.loaded(), run.model)
    status = group.ask("eu-0", "/v1/status")["report"]
    assert status["state"] == "Serving"
    wait_for(lambda: group.ask("eu-0", "/v1/status")["report"].get("scrub") == "Passed", what="a scrub")
    assert len(open_checkpoint(run.path).files) > 2, "it has several shards"
    run.publisher.close(0.0)


def test_a_folder_that_waits_for_readers_takes_all_versions_in_one_step(tmp_path: Path, group: InsideGroup) -> None:
    run = Run(tmp_path, group)
    group.start("eu-0")
    for step in (1, 2):
        run.reaches(run.publish(step))
    older = next(one for one in run.served.iterdir() if one.name.startswith("00000001"))
    with next(older.glob("*.safetensors")).open("rb"):
        for step in (3, 4, 5):
            run.publish(step)
        wait_for(lambda: getattr(group.sidecars["eu-0"].versions.head, "seq", 0) == 5, what="the news of version 5")
        held = read_note(run.path)
        assert held is not None
        assert held.seq == 2
    run.reaches(5)
    assert same(run.loaded(), run.model)
    names = sorted(one.name[:8] for one in run.served.iterdir() if one.is_dir() and not one.is_symlink())
    assert names == ["00000002", "00000005"]
    run.publisher.close(0.0)


def test_a_base_of_other_weights_is_brought_level_by_whole_ones(tmp_path: Path, group: InsideGroup) -> None:
    run = Run(tmp_path, group)
    tiny_llama(seed=5).to(torch.bfloat16).save_pretrained(tmp_path / "other", max_shard_size=SHARD)
    for file in (tmp_path / "base").iterdir():
        file.unlink()
    for file in (tmp_path / "other").iterdir():
        file.rename(tmp_path / "base" / file.name)
    first = run.publish(1)
    group.start("eu-0")
    run.reaches(first)
    assert same(run.loaded(), run.model)
    run.reaches(run.publish(2))
    assert same(run.loaded(), run.model)
    run.publisher.close(0.0)


def test_a_trainer_that_went_another_way_is_followed(tmp_path: Path, group: InsideGroup) -> None:
    run = Run(tmp_path, group)
    group.start("eu-0")
    run.reaches(run.publish(1))
    run.publisher.close(0.0)
    for step in range(50, 60):  # a state that nobody knows
        train(run.model, step)
    run.publisher = run.opened()
    wait_for(lambda: same(run.loaded(), run.model), 30, what="the new lineage")
    run.reaches(run.publish(2))
    assert same(run.loaded(), run.model)
    run.publisher.close(0.0)


def test_bits_that_rot_are_found_and_put_right(tmp_path: Path, group: InsideGroup) -> None:
    run = Run(tmp_path, group)
    group.start("eu-0")
    run.reaches(run.publish(1))
    wait_for(lambda: group.ask("eu-0", "/v1/status")["report"].get("scrub") == "Passed", what="a scrub")
    entry = next(iter(open_checkpoint(run.path).entries.values()))
    with entry.file.open("r+b") as file:
        file.seek(entry.begin)
        file.write(b"\xff\xff")
    assert not same(run.loaded(), run.model)
    role = group.sidecars["eu-0"].role
    assert isinstance(role, Rollout)
    engine = role.engine
    group.call(lambda: engine.scrubs.request(1))
    wait_for(lambda: same(run.loaded(), run.model), 30, what="a repair")
    run.reaches(run.publish(2))
    assert same(run.loaded(), run.model)
    run.publisher.close(0.0)


def test_a_base_that_comes_late_is_waited_for_and_reported(tmp_path: Path, group: InsideGroup) -> None:
    run = Run(tmp_path, group)
    (tmp_path / "base").rename(tmp_path / "elsewhere")
    group.start("eu-0")

    def trouble() -> Any:
        return group.ask("eu-0", "/v1/status")["report"].get("trouble")

    found = wait_for(trouble, what="a report")
    assert found["reason"] == "ServedFolder"
    assert "is not there" in found["message"]
    (tmp_path / "elsewhere").rename(tmp_path / "base")
    run.reaches(run.publish(1))
    assert trouble() is None
    run.publisher.close(0.0)


def test_a_base_of_another_dtype_is_refused_with_a_sentence(tmp_path: Path, group: InsideGroup) -> None:
    run = Run(tmp_path, group)
    for file in (tmp_path / "base").iterdir():
        file.unlink()
    tiny_llama().save_pretrained(tmp_path / "base")
    run.publish(1)
    group.start("eu-0")
    found = wait_for(lambda: group.ask("eu-0", "/v1/status")["report"].get("trouble"), what="a report")
    assert "is F32" in found["message"]
    run.publisher.close(0.0)


def test_a_member_with_a_served_folder_has_no_other_engine(tmp_path: Path, group: InsideGroup) -> None:
    run = Run(tmp_path, group)
    group.start("eu-0")
    run.reaches(run.publish(1))
    with pytest.raises(SyncError, match="another subscriber"):
        Subscriber(run.model, engine="transformers", socket=group.socket("eu-0"), timeout=5.0)
    run.publisher.close(0.0)


def slowly(folder: Path) -> dict[str, bytes]:
    """All shards, opened together and read a while later: what was open must not change."""
    with contextlib.ExitStack() as opened:
        files = {
            path.name: opened.enter_context(path.open("rb"))
            for path in sorted(folder.iterdir())
            if path.suffix == ".safetensors"
        }
        time.sleep(0.02)
        return {name: file.read() for name, file in files.items()}


def test_a_reader_at_any_moment_finds_one_whole_version(tmp_path: Path, group: InsideGroup) -> None:
    run = Run(tmp_path, group)
    group.start("eu-0")
    published = {0: content(tmp_path / "base")}
    wait_for((run.served / CURRENT).exists, what="the folder")
    seen: list[int] = []
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            path = run.path
            try:
                found = slowly(path)
            except FileNotFoundError:
                continue  # it came too late for this version, and finds the next one
            seen.append(int(path.name[:8]) if published.get(int(path.name[:8])) == found else -1)

    for step in range(1, SWAPS + 1):
        train(run.model, step)
        published[step] = saved(run.model, tmp_path / "now")
        if step == 1:
            reader = threading.Thread(target=read)
            reader.start()
        run.publisher.publish(step=step)
        run.reaches(step)
    stop.set()
    reader.join(10)
    assert -1 not in seen
    assert len(set(seen)) > SWAPS // 3
    assert sorted(seen) == seen
    run.publisher.close(0.0)


def test_a_sidecar_that_starts_again_serves_on_from_its_digest(tmp_path: Path, group: InsideGroup) -> None:
    run = Run(tmp_path, group, engine="module")
    group.start("eu-0")
    for step in (1, 2):
        run.reaches(run.publish(step))
    group.stop("eu-0")
    run.publish(3)
    group.start("eu-0")
    run.reaches(3)
    assert same(run.loaded(), run.model)
    stored = [one.key for one in group.sidecars["eu-0"].spool.objects()]
    assert sum(key.is_anchor for key in stored) <= 1, "its digest was known again: no second set of whole weights"
    assert (run.path / NOTE).exists()
    run.publisher.close(0.0)


def test_the_example_of_the_page_runs(tmp_path: Path, group: InsideGroup) -> None:
    run = Run(tmp_path, group)
    group.start("eu-0")
    run.reaches(run.publish(1))
    page = (REPOSITORY / "docs/engines.md").read_text()
    (block,) = [text for text in page.split("```") if text.startswith("python") and "realpath" in text]
    found: dict[str, Any] = {}
    exec(block.removeprefix("python").replace("/models/served", str(run.served)), found)  # noqa: S102 -- our own page
    assert same(found["model"], run.model)
    run.publisher.close(0.0)
