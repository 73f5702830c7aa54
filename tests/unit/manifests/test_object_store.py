"""A group with an object store: what its Secret must hold, where the copy goes, and who sees it."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import pytest

from sync_runtime.contract import names
from sync_runtime.contract.syncgroup import SyncGroup
from sync_runtime.settings import from_environment
from syncgroup_operator import reasons
from syncgroup_operator.manifests.children import children_of
from syncgroup_operator.manifests.pods import template_hashes
from syncgroup_operator.manifests.problems import problems_of
from syncgroup_operator.planning.diff import Apply, Delete, diff
from syncgroup_operator.planning.observation import ChildView, Observation, StoreSecret
from tests.unit.manifests.samples import (
    AWAY,
    EXTRAS,
    HUB_ID,
    IMAGE,
    KEY,
    LIBRARY,
    UID,
    clusters,
    decision,
    group,
    observation,
)

NAME = names.store_secret_name(KEY)
DATA = {
    key: base64.b64encode(value).decode()
    for key, value in (("AWS_ACCESS_KEY_ID", b"who"), ("AWS_SECRET_ACCESS_KEY", b"what"))
}
SECRET = StoreSecret("credentials", DATA)


def sync(url: str = "s3://weights", **store: Any) -> dict[str, Any]:
    return {"transport": "ObjectStore", "objectStore": {"url": url, **store}}


def stored(secret: StoreSecret | None = SECRET, **changes: Any) -> Observation:
    store: dict[str, Any] = {} if secret is None else {"secretRef": {"name": "credentials"}}
    return observation(
        group(sync=sync(**store)), store_secrets={} if secret is None else {secret.name: secret}, **changes
    )


def documents(seen: Observation, kind: str) -> dict[str, dict[str, Any]]:
    wanted = children_of(seen, decision(), EXTRAS)
    return {one.cluster: dict(one.document) for one in wanted if one.document["kind"] == kind}


def test_the_copy_goes_to_every_cluster_with_members_and_carries_the_groups_marks() -> None:
    found = documents(stored(), "Secret")
    assert set(found) == {"local", "frankfurt"}
    for cluster, namespace in (("local", KEY.namespace), ("frankfurt", "guests")):
        metadata = found[cluster]["metadata"]
        assert (metadata["name"], metadata["namespace"], found[cluster]["data"]) == (NAME, namespace, DATA)
        assert metadata["labels"][names.LABEL_GROUP_UID] == UID
    assert found["local"]["metadata"]["ownerReferences"][0]["uid"] == UID
    assert found["frankfurt"]["metadata"]["annotations"][names.ANNOTATION_HUB] == HUB_ID


def test_the_credentials_are_mounted_in_the_sidecar_alone_and_read_only() -> None:
    for pod in documents(stored(), "Pod").values():
        holders = {
            container["name"]: mount
            for container in (*pod["spec"]["initContainers"], *pod["spec"]["containers"])
            for mount in container.get("volumeMounts", ())
            if mount["name"] == names.STORE_VOLUME
        }
        assert set(holders) == {names.RUNTIME_CONTAINER}
        assert holders[names.RUNTIME_CONTAINER]["readOnly"] is True
        (volume,) = [one for one in pod["spec"]["volumes"] if one["name"] == names.STORE_VOLUME]
        assert volume["secret"] == {"secretName": NAME}
        sidecar = next(one for one in pod["spec"]["initContainers"] if one["name"] == names.RUNTIME_CONTAINER)
        values = {one["name"]: one.get("value", "x") for one in sidecar["env"]}
        assert str(from_environment(values).store_secret_dir) == holders[names.RUNTIME_CONTAINER]["mountPath"]


@pytest.mark.parametrize("of", [group(), group(sync=sync())])
def test_without_a_secret_nothing_is_copied_or_mounted(of: Any) -> None:
    seen = observation(of)
    assert not documents(seen, "Secret")
    assert names.STORE_VOLUME not in str(documents(seen, "Pod"))


def test_a_rotated_secret_changes_the_copy_and_no_pod() -> None:
    before, after = stored(), stored(StoreSecret("credentials", DATA | {"AWS_SESSION_TOKEN": "bmV3"}))
    assert documents(before, "Secret") != documents(after, "Secret")
    assert documents(before, "Pod") == documents(after, "Pod")


def seen_copy(data: dict[str, str]) -> Observation:
    """The hub with a copy, as it was applied when the Secret held this."""
    document = documents(stored(StoreSecret("credentials", data)), "Secret")["local"]
    key = next(one.key for one in children_of(stored(), decision(), EXTRAS) if one.key.kind == "Secret")
    from_hub = ChildView(key, "uid-copy", "1", json.dumps(document).encode())
    return stored(views=clusters(local={"children": {key: from_hub}}))


@pytest.mark.parametrize(
    ("held", "applied"),
    [(DATA, False), ({**DATA, "AWS_ACCESS_KEY_ID": "b2xk"}, True), ({**DATA, "AWS_SESSION_TOKEN": "b2xk"}, True)],
)
def test_a_copy_is_applied_where_a_value_changed_or_a_key_went_away(held: dict[str, str], applied: bool) -> None:
    seen = seen_copy(held)
    wanted = children_of(seen, decision(), EXTRAS)
    actions = [one for one in diff(wanted, seen, decision()) if one.key.kind == "Secret" and one.cluster == "local"]
    assert [type(one) for one in actions] == ([Apply] if applied else [])


def test_a_copy_that_nobody_wants_any_more_goes() -> None:
    views = seen_copy(DATA).clusters
    seen = observation(group(), views=views)
    actions = diff(children_of(seen, decision(), EXTRAS), seen, decision())
    assert [one.uid for one in actions if isinstance(one, Delete) and one.key.kind == "Secret"] == ["uid-copy"]


@pytest.mark.parametrize(
    ("secret", "reason", "words"),
    [
        (StoreSecret("credentials"), reasons.SECRET_NOT_FOUND, "there is no Secret credentials in namespace"),
        (StoreSecret("credentials", {}), reasons.SECRET_UNUSABLE, "it has no AWS_ACCESS_KEY_ID"),
        (StoreSecret("credentials", {"AWS_REGION": "%"}), reasons.SECRET_UNUSABLE, "is not base64"),
        (StoreSecret("credentials", denied="forbidden"), reasons.DENIED, "`rbac.storeSecrets`"),
    ],
)
def test_a_secret_that_cannot_open_the_store_stalls_the_group(secret: StoreSecret, reason: str, words: str) -> None:
    (problem,) = problems_of(stored(secret))
    assert (problem.reason, problem.field) == (reason, "spec.sync.objectStore.secretRef.name")
    assert words in problem.message
    assert not documents(stored(StoreSecret("credentials")), "Secret")


def test_a_whole_secret_is_no_problem_and_is_never_printed() -> None:
    assert problems_of(stored()) == ()
    assert DATA["AWS_SECRET_ACCESS_KEY"] not in repr(stored())


def test_a_template_cannot_mount_the_credentials() -> None:
    mount = {"name": names.STORE_VOLUME, "mountPath": "/mine"}
    container = {"name": "engine", "image": "a", "volumeMounts": [mount]}
    taken = group(rollout={"template": {"spec": {"containers": [container]}}}, sync=sync())
    assert "is the runtime's own" in problems_of(observation(taken))[0].message


def test_groups_without_a_store_keep_their_pods() -> None:
    plain = template_hashes(group(), UID, IMAGE, LIBRARY)
    assert plain == template_hashes(group(sync=sync()), UID, IMAGE, LIBRARY)
    with_secret = group(sync=sync(secretRef={"name": "credentials"}))
    assert plain != template_hashes(with_secret, UID, IMAGE, LIBRARY)


REGION = {"cluster": "frankfurt", "region": AWAY.region, "transport": "ObjectStore"}
OWN = {"url": "gs://own", "secretRef": {"name": "own"}}
OWN_DATA = {"GOOGLE_SERVICE_ACCOUNT_KEY": "e30="}


def of_region(store: dict[str, Any] | None = OWN, **sync_fields: Any) -> Observation:
    way = REGION if store is None else {**REGION, "objectStore": store}
    secrets = {"credentials": SECRET, "own": StoreSecret("own", OWN_DATA)}
    return observation(group(sync={"regions": [way], **sync_fields}), store_secrets=secrets)


def test_a_regions_secret_goes_to_its_cluster_and_the_trainers_under_names_that_no_other_secret_has() -> None:
    found = documents(of_region(), "Secret")
    assert set(found) == {"local", "frankfurt"}
    (key,) = found["frankfurt"]["data"]
    assert key.endswith(".GOOGLE_SERVICE_ACCOUNT_KEY")
    assert found["local"]["data"] == found["frankfurt"]["data"] == {key: "e30="}


def test_a_cluster_gets_no_credentials_for_a_store_that_nobody_there_opens() -> None:
    both = of_region(**sync(secretRef={"name": "credentials"}))
    found = documents(both, "Secret")
    assert set(found["local"]["data"]) > set(DATA)  # the trainer feeds both
    assert not set(found["frankfurt"]["data"]) & set(DATA)
    streaming = of_region(None, **sync(secretRef={"name": "credentials"})).group.to_document()
    streaming["spec"]["sync"]["regions"][0]["transport"] = "Streams"
    only_home = observation(SyncGroup.parse(streaming), store_secrets={"credentials": SECRET})
    assert set(documents(only_home, "Secret")) == {"local"}
    assert names.STORE_VOLUME not in str(documents(only_home, "Pod")["frankfurt"])


def test_the_groups_own_secret_keeps_its_names_for_a_region_that_uses_it() -> None:
    seen = of_region(None, objectStore={"url": "s3://weights", "secretRef": {"name": "credentials"}})
    assert documents(seen, "Secret")["frankfurt"]["data"] == DATA
    assert names.STORE_VOLUME in str(documents(seen, "Pod")["frankfurt"])


def test_a_missing_secret_of_a_region_is_told_with_its_field() -> None:
    seen = replace(of_region(), store_secrets={"own": StoreSecret("own")})
    (problem,) = problems_of(seen)
    assert (problem.reason, problem.field) == (
        reasons.SECRET_NOT_FOUND, "spec.sync.regions[0].objectStore.secretRef.name",
    )  # fmt: skip


def test_a_fallback_region_that_comes_to_have_a_secret_makes_pods_anew() -> None:
    rollout = {"placement": {"fallback": [{"region": "paris"}]}}
    way = {"region": "paris", "transport": "ObjectStore", "objectStore": {"url": "s3://weights"}}
    plain = group(rollout=rollout, sync={"regions": [way]})
    named = group(rollout=rollout, sync={"regions": [{**way, "objectStore": {**OWN}}]})
    before, after = (template_hashes(one, UID, IMAGE, LIBRARY) for one in (plain, named))
    assert before["eu"] == template_hashes(group(rollout=rollout), UID, IMAGE, LIBRARY)["eu"]
    assert before["eu"] != after["eu"]
