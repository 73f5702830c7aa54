"""The contract and the API server give the same verdict on the same document, and fill in the same defaults.

Documents are generated: valid ones, and ones broken in a place or two (`tests/unit/contract`). Each is offered to a
real API server by a dry run with strict field validation, and to the contract.
"""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, Phase, given, settings

from sync_runtime.contract.documents import Resource, load_resource
from sync_runtime.contract.errors import InvalidDocumentError
from sync_runtime.contract.rules import Rule
from sync_runtime.contract.synccluster import SyncCluster
from sync_runtime.contract.syncgroup import SyncGroup
from tests.cluster.crd_fixtures import CRDS_DIR, Api
from tests.unit.contract.mutations import border_documents, mutated
from tests.unit.contract.samples import models_below
from tests.unit.contract.strategies import Document, syncclusters, syncgroups

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180), pytest.mark.usefixtures("crds")]

PATHS = {
    "SyncGroup": "/apis/syncgroup.dev/v1alpha1/namespaces/default/syncgroups",
    "SyncCluster": "/apis/syncgroup.dev/v1alpha1/syncclusters",
}
RULE_MESSAGES = {
    rule.message
    for root in (SyncGroup, SyncCluster)
    for model in models_below(root)
    for rule in model.RULES
    if isinstance(rule, Rule)
}

# Shared by the tests of this file. The region is shared by all of them anyway; a slow answer is no failure.
# Shrinking and explaining a disagreement would take minutes of API calls; the document as found says enough.
generated = settings(
    deadline=None,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def schema_of(plural: str) -> dict[str, Any]:
    definition = yaml.safe_load((CRDS_DIR / f"{plural}.yaml").read_text(encoding="utf-8"))
    schema: dict[str, Any] = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


def offer(region: Api, document: Document) -> tuple[bool, dict[str, Any]]:
    """Whether the API server would create it, and its answer."""
    status, answer = region.api("POST", f"{PATHS[document['kind']]}?dryRun=All&fieldValidation=Strict", document)
    assert status in (201, 400, 422), f"neither accepted nor refused: {status} {answer}"
    return status == 201, answer


def judge(document: Document) -> tuple[Resource | None, tuple[str, ...]]:
    """The contract's model, or its messages."""
    try:
        return load_resource(document), ()
    except InvalidDocumentError as error:
        return None, tuple(problem.message for problem in error.problems)


def check_agreement(region: Api, document: Document) -> bool:
    """Compare the two verdicts; returns the verdict that they share."""
    accepted, answer = offer(region, document)
    resource, messages = judge(document)
    if resource is None:
        assert not accepted, f"the contract alone refuses: {messages}"
        if set(messages) <= RULE_MESSAGES:
            # Nothing but rules is broken, so the API server ran them too: it must complain in the same words.
            missing = [message for message in messages if message not in answer["message"]]
            assert not missing, f"the API server does not say {missing} but {answer['message']}"
        return False
    assert accepted, f"the API server alone refuses: {answer['message']}"
    assert answer["spec"] == resource.to_document()["spec"], "different defaults"
    return True


@settings(generated, max_examples=150)
@given(document=syncgroups())
def test_a_generated_syncgroup_is_accepted_by_both_with_the_same_defaults(region: Api, document: Document) -> None:
    assert check_agreement(region, document), "the strategy must draw valid documents"


@settings(generated, max_examples=300)
@given(document=mutated(syncgroups(), schema_of("syncgroups")))
def test_a_mutated_syncgroup_gets_the_same_verdict_from_both(region: Api, document: Document) -> None:
    check_agreement(region, document)


@settings(generated, max_examples=50)
@given(document=syncclusters())
def test_a_generated_synccluster_is_accepted_by_both_with_the_same_defaults(region: Api, document: Document) -> None:
    assert check_agreement(region, document), "the strategy must draw valid documents"


@settings(generated, max_examples=150)
@given(document=mutated(syncclusters(), schema_of("syncclusters")))
def test_a_mutated_synccluster_gets_the_same_verdict_from_both(region: Api, document: Document) -> None:
    check_agreement(region, document)


@pytest.mark.parametrize("name", ["four-regions", "object-store", "synccluster"])
def test_every_field_of_an_example_is_judged_alike_at_its_borders(region: Api, name: str) -> None:
    """Not by chance: every place of the document, every border, every kind of value."""
    document = yaml.safe_load((CRDS_DIR / "examples" / f"{name}.yaml").read_text(encoding="utf-8"))
    plural = document["kind"].lower() + "s"
    disagreements = []
    for change, changed in border_documents(document, schema_of(plural)):
        try:
            check_agreement(region, changed)
        except AssertionError as error:
            disagreements.append(f"{change}: {error}")
    assert disagreements == []


def test_a_whole_number_written_as_a_fraction_is_stored_as_a_whole_number_where_no_rule_reads_it(region: Api) -> None:
    """The one known difference: the contract refuses 1.0, and no reader ever sees one, since the server stores 1."""
    template: Document = {"spec": {"containers": []}}
    spec = {
        "trainer": {"region": "a", "template": template},
        "rollouts": [{"name": "a", "region": "a", "template": template}],
        "work": {"maxAttempts": 3.0},
    }
    document = {"apiVersion": "syncgroup.dev/v1alpha1", "kind": "SyncGroup", "metadata": {"name": "a"}, "spec": spec}
    accepted, answer = offer(region, document)
    assert accepted
    assert type(answer["spec"]["work"]["maxAttempts"]) is int
    assert judge(document)[1] == ("must be a whole number, not 3.0",)
