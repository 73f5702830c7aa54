"""A file means the same to kubectl and to `syncgroup validate`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from syncgroup.manifests import read_documents
from tests.cluster.test_crds_status import Kubectl
from tests.unit.cli.yaml_samples import SCALARS
from tests.unit.contract.samples import EXAMPLES

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(60), pytest.mark.usefixtures("crds")]


def test_every_plain_scalar_is_read_as_kubectl_reads_it(region: Kubectl, tmp_path: Path) -> None:
    path = tmp_path / "scalars.yaml"
    lines = [f"    k{index}: {text}" for index, (text, _) in enumerate(SCALARS)]
    header = "apiVersion: syncgroup.dev/v1alpha1\nkind: SyncGroup\nmetadata: {name: a}\nspec:\n  trainer:\n"
    path.write_text(header + "\n".join(lines), encoding="utf-8")
    assert_same(region, path)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_read_as_kubectl_reads_it(region: Kubectl, path: Path) -> None:
    assert_same(region, path)


def assert_same(region: Kubectl, path: Path) -> None:
    ((_, ours),) = read_documents(str(path))
    printed = region.kubectl("create", "--dry-run=client", "--validate=ignore", "-o", "json", "-f", str(path)).stdout
    theirs = json.loads(printed)
    # By text, so that 1 and 1.0 and true differ.
    assert json.dumps(ours["spec"], sort_keys=True) == json.dumps(theirs["spec"], sort_keys=True)
