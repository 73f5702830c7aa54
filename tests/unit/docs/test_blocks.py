"""What pages show in blocks is true: shell blocks run, resources are valid."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from sync_runtime.contract.documents import load_resource
from tests.support.pages import REPOSITORY, Block, blocks, pages, run_block

OWN_TESTS = {"docs/delta.md", "docs/interop.md"}
"""Pages whose shell blocks are run in order by a test of their own."""
MARKS = {"runnable", "runnable=cluster"}
ALL = [block for page in pages() for block in blocks(page)]
SHELL = [block for block in ALL if block.language == "sh"]
CHEAP = [block for block in SHELL if block.mark == "runnable"]
RESOURCES = [block for block in ALL if block.language == "yaml" and "syncgroup.dev/v1alpha1" in block.text]


@pytest.mark.parametrize("block", CHEAP, ids=lambda block: block.name)
@pytest.mark.timeout(60)
def test_a_runnable_block_runs(block: Block, tmp_path: Path) -> None:
    if shutil.which("bash") is None:
        pytest.skip("there is no bash here, which runs the blocks")
    assert run_block(block, REPOSITORY, {"HOME": str(tmp_path)}, timeout_s=50)


def test_every_shell_block_is_run_somewhere() -> None:
    others = [block for block in SHELL if str(block.page.relative_to(REPOSITORY)) not in OWN_TESTS]
    unmarked = [block.name for block in others if block.mark not in MARKS]
    assert unmarked == [], "a fenced `sh` block says where it runs; what is only shown is indented"
    assert CHEAP
    assert any(block.mark == "runnable=cluster" for block in SHELL)


def test_a_block_that_fails_in_the_middle_is_a_failure(tmp_path: Path) -> None:
    block = Block(REPOSITORY / "README.md", 1, "sh", "runnable", "echo before\nfalse\necho after\n")
    with pytest.raises(AssertionError, match="ended with 1"):
        run_block(block, tmp_path, {}, timeout_s=10)


@pytest.mark.parametrize("block", RESOURCES, ids=lambda block: block.name)
def test_resources_on_pages_are_valid(block: Block) -> None:
    for document in yaml.safe_load_all(block.text):
        assert load_resource(document).kind in ("SyncGroup", "SyncCluster")


def test_the_readme_shows_a_group_in_ten_lines() -> None:
    (example,) = [block for block in RESOURCES if block.page.name == "README.md"]
    assert len(example.text.splitlines()) <= 10
