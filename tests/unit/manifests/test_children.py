from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from sync_runtime.contract import names
from sync_runtime.contract.syncgroup import SyncGroup
from syncgroup_operator.manifests.children import children_of
from syncgroup_operator.manifests.objects import member_role
from syncgroup_operator.planning.decision import Seat
from syncgroup_operator.planning.diff import Wanted
from syncgroup_operator.planning.observation import Place, Slot
from tests.unit.manifests.samples import (
    AWAY,
    EU_SEAT,
    EXTRAS,
    HOME,
    HUB_ID,
    KEY,
    TRAINER_SEAT,
    UID,
    clusters,
    decision,
    group,
    observation,
    template,
)  # fmt: skip

CLAIM = {"storage": {"type": "PersistentVolumeClaim", "sizeBytes": 64 << 30, "storageClassName": "fast"}}


def children(of: SyncGroup | None = None, *seats: Seat, **changes: Any) -> tuple[Wanted, ...]:
    return children_of(observation(of, **changes), decision(*seats), EXTRAS)


def of_kind(wanted: tuple[Wanted, ...], kind: str, cluster: str | None = None) -> list[Any]:
    return [item.document for item in wanted if item.document["kind"] == kind and cluster in (None, item.cluster)]


def test_children_come_in_the_order_in_which_they_are_needed() -> None:
    kinds = [item.document["kind"] for item in children(group(runtime=CLAIM))]
    order = ["Role", "RoleBinding", "Service", "ConfigMap", "PersistentVolumeClaim", "Lease", "Pod"]
    assert sorted(set(kinds), key=kinds.index) == order
    assert [kind for kind in kinds if kind not in ("Role", "RoleBinding")] == sorted(
        [kind for kind in kinds if kind not in ("Role", "RoleBinding")], key=order.index
    )


def test_the_same_pass_gives_the_same_children() -> None:
    assert children() == children()
    assert len({(item.cluster, item.key) for item in children()}) == len(children())


def test_everything_carries_the_group_and_remote_things_their_hub() -> None:
    for item in children(group(runtime=CLAIM)):
        metadata = item.document["metadata"]
        assert metadata["labels"][names.LABEL_GROUP_UID] == UID
        is_remote = item.cluster != "local"
        assert metadata["namespace"] == ("guests" if is_remote else KEY.namespace)
        assert (metadata.get("annotations", {}).get(names.ANNOTATION_HUB) == HUB_ID) == is_remote
        assert ("ownerReferences" in metadata) != is_remote


def test_a_suspended_group_keeps_everything_but_its_pods() -> None:
    running, suspended = children(), children(group(suspend=True))
    assert of_kind(suspended, "Pod") == []
    without_pods = [item.key for item in running if item.document["kind"] != "Pod"]
    assert [item.key for item in suspended] == without_pods


def test_a_seat_that_waits_has_a_lease_and_no_pod() -> None:
    waiting = dataclasses.replace(EU_SEAT, create=False)
    wanted = children(None, TRAINER_SEAT, waiting)
    assert len(of_kind(wanted, "Lease", "frankfurt")) == 1
    assert of_kind(wanted, "Pod", "frankfurt") == []


def test_a_group_that_is_being_deleted_wants_nothing() -> None:
    assert children(deleting=True) == ()


def test_no_pod_is_made_before_there_is_something_to_trust() -> None:
    wanted = children_of(observation(), decision(), dataclasses.replace(EXTRAS, trust_bundle=""))
    assert of_kind(wanted, "Pod") == []
    assert len(of_kind(wanted, "ConfigMap")) == 2


def test_seats_in_an_unknown_cluster_and_of_a_vanished_role_are_passed_over() -> None:
    nowhere = Seat(Slot("eu", 1), Place("mars", "north"))
    vanished = Seat(Slot("gone", 0), HOME)
    wanted = children(None, TRAINER_SEAT, EU_SEAT, nowhere, vanished)
    assert {item.cluster for item in wanted} == {"local", "frankfurt"}
    assert len(of_kind(wanted, "Pod")) == 2


def test_members_may_renew_their_leases_and_read_their_plans_and_nothing_else() -> None:
    second = Seat(Slot("eu", 1), Place("frankfurt", "eu-north-1"))
    (role,) = of_kind(children(None, TRAINER_SEAT, EU_SEAT, second), "Role", "frankfurt")
    leases, plans = role["rules"]
    assert (leases["resources"], leases["verbs"]) == (["leases"], ["get", "update", "patch"])
    assert leases["resourceNames"] == sorted(names.lease_name(KEY, "eu", index) for index in (0, 1))
    assert (plans["resources"], plans["verbs"]) == (["configmaps"], ["get", "list", "watch"])
    regions = ("eu-central-1", "eu-north-1")
    assert plans["resourceNames"] == sorted(names.plan_name(KEY, "frankfurt", region) for region in regions)


def test_a_role_without_names_allows_nothing_instead_of_everything() -> None:
    assert member_role(observation(), "local", HUB_ID, leases=[], plans=[])["rules"] == []


def test_the_role_is_given_to_the_accounts_that_the_templates_name_there() -> None:
    further = {"name": "spare", "region": "eu-north-1", "cluster": "frankfurt", "template": template()}
    of = group(rollout={"template": template(serviceAccountName="engine")}, further=(further,))
    seats = (TRAINER_SEAT, EU_SEAT, Seat(Slot("spare", 0), Place("frankfurt", "eu-north-1")))
    (binding,) = of_kind(children(of, *seats), "RoleBinding", "frankfurt")
    assert [(item["name"], item["namespace"]) for item in binding["subjects"]] == [
        ("default", "guests"),
        ("engine", "guests"),
    ]
    assert binding["roleRef"]["name"] == names.member_role_name(KEY)


def trainer_service(exposure: dict[str, Any]) -> dict[str, Any] | None:
    found = of_kind(children(group(trainer={"exposure": exposure})), "Service", "local")
    services = {item["metadata"]["name"]: item for item in found}
    return services.get(names.trainer_service_name(KEY))


def ports(service: dict[str, Any]) -> list[tuple[int, int | None]]:
    assert all(port["targetPort"] == names.DATA_PORT for port in service["spec"]["ports"])
    return [(port["port"], port.get("nodePort")) for port in service["spec"]["ports"]]


@pytest.mark.parametrize(
    ("exposure", "expected"),
    [
        ({"type": "NodePort"}, [(7443, None)]),
        ({"type": "NodePort", "port": 30443}, [(7443, 30443)]),
        ({"type": "LoadBalancer", "port": 7443}, [(7443, None)]),
        ({"type": "LoadBalancer", "port": 443}, [(7443, None), (443, None)]),
    ],
)
def test_the_trainer_is_exposed_as_asked_and_reached_at_home_on_the_data_port(
    exposure: dict[str, Any], expected: list[tuple[int, int | None]]
) -> None:
    service = trainer_service(exposure)
    assert service is not None
    assert ports(service) == expected
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert service["spec"]["selector"][names.LABEL_ROLE] == "trainer"


def test_a_load_balancer_gets_its_annotations_and_ranges() -> None:
    service = trainer_service({"type": "LoadBalancer", "annotations": {"a": "b"}, "sourceRanges": ["10.0.0.0/8"]})
    assert service is not None
    assert service["metadata"]["annotations"] == {"a": "b"}
    assert service["spec"]["loadBalancerSourceRanges"] == ["10.0.0.0/8"]


def test_an_external_address_needs_no_service() -> None:
    assert trainer_service({"type": "External", "host": "h", "port": 1}) is None


def test_each_cluster_has_one_headless_service_for_all_its_members() -> None:
    (service,) = of_kind(children(), "Service", "frankfurt")
    assert service["metadata"]["name"] == names.members_service_name(KEY)
    assert (service["spec"]["clusterIP"], service["spec"]["publishNotReadyAddresses"]) == ("None", True)
    assert service["spec"]["selector"] == names.group_labels(KEY, UID)


def test_a_plan_carries_its_numbers_where_they_can_be_read_without_reading_it() -> None:
    found = {item["metadata"]["name"]: item for item in of_kind(children(), "ConfigMap", "frankfurt")}
    plan = found[names.plan_name(KEY, *AWAY)]
    assert plan["metadata"]["annotations"][names.ANNOTATION_TERM] == "3"
    assert plan["metadata"]["annotations"][names.ANNOTATION_PLAN_REVISION] == "7"
    assert plan["data"][names.PLAN_KEY].startswith("{")
    assert found[names.trust_bundle_name(KEY)]["data"] == {"ca.crt": EXTRAS.trust_bundle}


def test_a_claim_belongs_to_the_seat_and_not_to_a_pod() -> None:
    (claim,) = of_kind(children(group(runtime=CLAIM)), "PersistentVolumeClaim", "frankfurt")
    assert claim["metadata"]["name"] == names.spool_claim_name(KEY, "eu", 0)
    assert claim["spec"]["storageClassName"] == "fast"
    assert claim["spec"]["resources"]["requests"]["storage"] == str(64 << 30)
    assert of_kind(children(), "PersistentVolumeClaim") == []


def test_a_lease_is_made_empty_with_the_labels_of_its_seat() -> None:
    (lease,) = of_kind(children(), "Lease", "frankfurt")
    assert "spec" not in lease
    assert lease["metadata"]["labels"][names.LABEL_INDEX] == "0"


def test_a_group_whose_namespace_on_the_hub_is_another_has_no_owner_there() -> None:
    for item in children(views=clusters(local={"namespace": "elsewhere"})):
        assert "ownerReferences" not in item.document["metadata"]
