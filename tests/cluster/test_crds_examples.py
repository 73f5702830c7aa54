"""Every example is taken by a real API server, every bad one is refused with the message that the file pins."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from sync_runtime.contract.documents import load_resource
from tests.cluster.crd_fixtures import Api
from tests.unit.contract.samples import BAD_EXAMPLES, EXAMPLES, pinned_messages

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(60), pytest.mark.usefixtures("crds")]

API = "/apis/syncgroup.dev/v1alpha1"


def collection(document: dict[str, object], namespace: str) -> str:
    return f"{API}/syncclusters" if document["kind"] == "SyncCluster" else f"{API}/namespaces/{namespace}/syncgroups"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_created_with_the_defaults_of_the_contract(region: Api, namespace: str, path: Path) -> None:
    for document in yaml.safe_load_all(path.read_text(encoding="utf-8")):
        collection_path = collection(document, namespace)
        status, answer = region.api("POST", f"{collection_path}?fieldValidation=Strict", document)
        assert status == 201, answer.get("message")
        try:
            assert answer["spec"] == load_resource(document).to_document()["spec"]
        finally:
            region.api("DELETE", f"{collection_path}/{document['metadata']['name']}")


@pytest.mark.parametrize("path", BAD_EXAMPLES, ids=lambda path: path.stem)
def test_a_bad_example_is_refused_with_its_pinned_message(region: Api, path: Path) -> None:
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    dry_run = f"{collection(document, 'default')}?fieldValidation=Strict&dryRun=All"
    status, answer = region.api("POST", dry_run, document)
    assert status in (400, 422), f"accepted: {answer}"
    assert pinned_messages(path).refused in answer["message"]


def test_kubectl_finds_both_kinds_by_their_category_and_short_names(region: Api) -> None:
    status, discovery = region.api("GET", API)
    assert status == 200
    found = {
        item["kind"]: (item["shortNames"], item["categories"], item["namespaced"])
        for item in discovery["resources"]
        if "/" not in item["name"]
    }
    assert found == {
        "SyncGroup": (["sg"], ["syncgroup", "syncgroup-all"], True),
        "SyncCluster": (["sc", "sgc"], ["syncgroup-all"], False),
    }
