"""Changes that an API server refuses, the contract refuses too, in the same words; and only those."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from sync_runtime.contract.documents import check_update, load_resource
from sync_runtime.contract.errors import InvalidDocumentError
from tests.cluster.crd_fixtures import Api
from tests.unit.contract.strategies import Document, syncgroups
from tests.unit.contract.update_samples import FORBIDDEN_UPDATES, claim_group

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120), pytest.mark.usefixtures("crds")]

GROUPS = "/apis/syncgroup.dev/v1alpha1/namespaces/default/syncgroups"

_numbers = itertools.count()


def server_verdict(region: Api, old: Document, new: Document) -> tuple[int, str]:
    """Create the old document for real, offer the new one by a dry run, and clean up."""
    name = f"update-{next(_numbers)}"
    status, created = region.api("POST", GROUPS, {**old, "metadata": {"name": name}})
    assert status == 201, created.get("message")
    try:
        metadata = {"name": name, "resourceVersion": created["metadata"]["resourceVersion"]}
        status, answer = region.api("PUT", f"{GROUPS}/{name}?dryRun=All", {**new, "metadata": metadata})
        return status, answer.get("message", "")
    finally:
        region.api("DELETE", f"{GROUPS}/{name}")


def contract_messages(old: Document, new: Document) -> list[str]:
    try:
        check_update(load_resource(old), load_resource(new))
    except InvalidDocumentError as error:
        return [problem.message for problem in error.problems]
    return []


@pytest.mark.parametrize(("change", "message"), FORBIDDEN_UPDATES.values(), ids=FORBIDDEN_UPDATES)
def test_a_forbidden_change_is_refused_with_its_message(
    region: Api, change: Callable[[dict[str, Any]], None], message: str
) -> None:
    old = claim_group()
    new = copy.deepcopy(old)
    change(new["spec"])
    status, answer = server_verdict(region, old, new)
    assert status == 422
    assert message in answer
    assert contract_messages(old, new) == [message]


@st.composite
def updates(draw: st.DrawFn) -> tuple[Document, Document]:
    """Two valid documents that share most of what cannot be changed."""
    old, new = draw(syncgroups()), draw(syncgroups())
    if draw(st.booleans()):
        new["spec"]["managedBy"] = old["spec"].get("managedBy", "syncgroup.dev/operator")
    if draw(st.booleans()):
        new["spec"]["trainer"]["region"] = old["spec"]["trainer"]["region"]
    if draw(st.booleans()):
        new["spec"]["rollouts"] = copy.deepcopy(old["spec"]["rollouts"])[::-1]
    return old, new


@settings(
    max_examples=60,
    deadline=None,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(pair=updates())
def test_contract_and_api_server_agree_on_generated_updates(region: Api, pair: tuple[Document, Document]) -> None:
    old, new = pair
    try:
        load_resource(new)
    except InvalidDocumentError:
        return  # not an update but a bad document: test_crds_agree is about those
    messages = contract_messages(old, new)
    status, answer = server_verdict(region, old, new)
    assert (status == 200) == (not messages), f"{status} {answer}, contract: {messages}"
    assert all(message in answer for message in messages)
