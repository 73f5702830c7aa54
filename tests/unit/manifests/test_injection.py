from __future__ import annotations

import copy
import dataclasses
from typing import Any

import pytest

from sync_runtime.contract import names
from sync_runtime.contract.syncgroup import SyncGroup
from sync_runtime.library.settings import LibrarySettings
from sync_runtime.settings import from_environment
from syncgroup_operator.manifests.inputs import LibraryFacts
from syncgroup_operator.manifests.pods import pod, template_hashes
from syncgroup_operator.planning.observation import NodeView, Place
from tests.unit.manifests.samples import (
    EU_SEAT,
    EXTRAS,
    HUB_ID,
    IMAGE,
    KEY,
    LIBRARY,
    TRAINER_SEAT,
    UID,
    clusters,
    group,
    observation,
    template,
)  # fmt: skip

Document = dict[str, Any]
FOLDER = "/opt/syncgroup/library/0123456789abcdef"
ENGINE = {"name": "engine", "image": "registry.example/engine:1"}


def eu_pod(of: SyncGroup | None = None, **changes: Any) -> Document:
    made = pod(observation(of or group(), changes.pop("views", None)), dataclasses.replace(EU_SEAT, **changes), EXTRAS)
    assert made is not None
    return made


def named(items: list[Document], name: str) -> Document:
    (found,) = [item for item in items if item["name"] == name]
    return found


def sidecar_of(document: Document) -> Document:
    return named(document["spec"]["initContainers"], names.RUNTIME_CONTAINER)


def environment(container: Document) -> dict[str, str]:
    return {item["name"]: item.get("value", "from a field") for item in container["env"]}


def mounts(container: Document) -> dict[str, str]:
    return {item["name"]: item["mountPath"] for item in container.get("volumeMounts", [])}


def test_the_sidecar_is_native_and_reads_its_settings_from_what_it_is_given() -> None:
    container = sidecar_of(eu_pod())
    assert (container["restartPolicy"], container["image"]) == ("Always", IMAGE)
    assert container["command"] + container["args"] == ["syncgroup", "sidecar"]
    settings = from_environment(environment(container))
    assert (settings.group, settings.group_namespace, settings.group_uid) == (KEY.name, KEY.namespace, UID)
    assert settings.member == settings.lease_name == names.member_name(KEY, "eu", 0)
    assert (settings.role, settings.cluster, settings.region) == ("rollout", "frankfurt", "eu-central-1")
    assert str(settings.plan_path) == names.PLAN_PATH
    assert environment(container)[names.ENV_PLAN_CONFIG_MAP] == names.plan_name(KEY, "frankfurt", "eu-central-1")


def test_the_startup_probe_asks_whether_the_process_answers_and_nothing_more() -> None:
    container = sidecar_of(eu_pod())
    assert container["startupProbe"]["httpGet"] == {"path": "/livez", "port": names.CONTROL_PORT}
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"


def test_the_api_token_and_the_key_are_in_the_sidecar_alone() -> None:
    document = eu_pod(group(rollout={"template": template(containers=[ENGINE, {"name": "b", "image": "x"}])}))
    private = {names.TOKEN_VOLUME, names.IDENTITY_VOLUME, names.TRUST_VOLUME, names.SPOOL_VOLUME, names.TMP_VOLUME}
    everyone = [*document["spec"]["initContainers"], *document["spec"]["containers"]]
    holders = {container["name"] for container in everyone if private & set(mounts(container))}
    assert holders == {names.RUNTIME_CONTAINER}
    assert document["spec"]["automountServiceAccountToken"] is False
    assert mounts(sidecar_of(document))[names.TOKEN_VOLUME] == "/var/run/secrets/kubernetes.io/serviceaccount"
    identity = named(document["spec"]["volumes"], names.IDENTITY_VOLUME)
    assert identity["emptyDir"]["medium"] == "Memory"


def test_a_template_that_wants_its_token_keeps_it() -> None:
    wanting = group(rollout={"template": template(automountServiceAccountToken=True)})
    assert eu_pod(wanting)["spec"]["automountServiceAccountToken"] is True


def test_the_user_gets_socket_and_library_and_other_containers_nothing() -> None:
    helper = {"name": "b", "image": "x"}
    document = eu_pod(group(rollout={"template": template(containers=[helper, ENGINE]), "container": "engine"}))
    other, engine = document["spec"]["containers"]
    assert other == helper
    assert mounts(engine) == {names.RUN_VOLUME: names.RUN_DIR, names.LIBRARY_VOLUME: names.LIBRARY_DIR}
    assert engine["volumeMounts"][1]["readOnly"] is True
    assert environment(engine) == {"SYNCGROUP_SOCKET": names.SOCKET_PATH, "SYNCGROUP_LIBRARY": FOLDER}


@pytest.mark.parametrize(
    ("mode", "variables", "init"),
    [
        ("Mount", {"SYNCGROUP_LIBRARY"}, ["sync-library", "sync-runtime"]),
        ("PythonPath", {"SYNCGROUP_LIBRARY", "PYTHONPATH"}, ["sync-library", "sync-runtime"]),
        ("None", set(), ["sync-runtime"]),
    ],
)
def test_each_library_mode_adds_what_it_says(mode: str, variables: set[str], init: list[str]) -> None:
    spec = eu_pod(group(runtime={"library": mode}))["spec"]
    assert set(environment(spec["containers"][0])) == {"SYNCGROUP_SOCKET", *variables}
    assert [container["name"] for container in spec["initContainers"]] == init
    assert any(volume["name"] == names.LIBRARY_VOLUME for volume in spec["volumes"]) == (mode != "None")


def test_the_library_is_copied_to_where_the_user_is_told() -> None:
    spec = eu_pod()["spec"]
    copy_of_it = named(spec["initContainers"], names.LIBRARY_CONTAINER)
    assert copy_of_it["args"] == ["library", "--output", FOLDER]
    assert mounts(copy_of_it) == {names.LIBRARY_VOLUME: names.LIBRARY_DIR}


def test_another_image_or_library_is_another_folder() -> None:
    def folder(of: SyncGroup, library: LibraryFacts = LIBRARY) -> str:
        made = pod(observation(of), EU_SEAT, dataclasses.replace(EXTRAS, library=library))
        assert made is not None
        return environment(made["spec"]["containers"][0])["SYNCGROUP_LIBRARY"]

    own = [group(runtime={"image": f"registry.example/own:{tag}"}) for tag in "ab"]
    other = LibraryFacts("f" * 64)
    assert len({folder(group()), folder(group(), other), folder(own[0]), folder(own[1]), folder(own[0], other)}) == 5


def test_the_runtime_comes_before_the_users_own_init_containers() -> None:
    slow = {"name": "download", "image": "x"}
    spec = eu_pod(group(rollout={"template": template(initContainers=[slow])}))["spec"]
    assert [item["name"] for item in spec["initContainers"]] == ["sync-library", "sync-runtime", "download"]
    assert spec["initContainers"][2] == slow


@pytest.mark.parametrize(
    ("container", "whole", "user"),
    [
        (None, None, 65532),
        (0, None, 65532),
        (1000, None, 1000),
        (None, 2000, 2000),
        (1000, 2000, 1000),
        (0, 2000, 65532),
    ],
)
def test_the_sidecar_has_the_users_number_but_is_never_root(
    container: int | None, whole: int | None, user: int
) -> None:
    engine = {**ENGINE, "securityContext": {"runAsUser": container}}
    made = eu_pod(group(rollout={"template": template(containers=[engine], securityContext={"runAsUser": whole})}))
    for name in (names.RUNTIME_CONTAINER, names.LIBRARY_CONTAINER):
        context = named(made["spec"]["initContainers"], name)["securityContext"]
        assert (context["runAsUser"], context["runAsNonRoot"], context["readOnlyRootFilesystem"]) == (user, True, True)


def test_a_member_has_its_name_in_dns() -> None:
    made = eu_pod()
    assert made["spec"]["hostname"] == made["metadata"]["name"] == names.member_name(KEY, "eu", 0)
    assert made["spec"]["subdomain"] == names.members_service_name(KEY)


def test_remote_pods_carry_the_hub_and_local_ones_their_owner() -> None:
    remote = eu_pod()["metadata"]
    assert remote["annotations"][names.ANNOTATION_HUB] == HUB_ID
    assert remote["namespace"] == "guests"
    assert "ownerReferences" not in remote
    local = pod(observation(), TRAINER_SEAT, EXTRAS)
    assert local is not None
    (owner,) = local["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("SyncGroup", UID, True)
    assert names.ANNOTATION_HUB not in local["metadata"]["annotations"]


def test_the_trainer_carries_its_term() -> None:
    trainer = pod(observation(), TRAINER_SEAT, EXTRAS)
    assert trainer is not None
    assert trainer["metadata"]["annotations"][names.ANNOTATION_TERM] == "3"
    assert environment(sidecar_of(trainer))[names.ENV_TERM] == "3"
    assert names.ANNOTATION_TERM not in eu_pod()["metadata"]["annotations"]


def test_labels_and_annotations_of_the_template_stay() -> None:
    metadata = {"labels": {"team": "a"}, "annotations": {"note": "b"}}
    made = eu_pod(group(rollout={"template": {**template(), "metadata": metadata}}))["metadata"]
    assert made["labels"]["team"] == "a"
    assert made["labels"][names.LABEL_ROLE] == "eu"
    assert made["annotations"]["note"] == "b"


@pytest.mark.parametrize(
    ("spread", "key"), [("Nodes", "kubernetes.io/hostname"), ("Zones", "topology.kubernetes.io/zone"), ("None", None)]
)
def test_members_spread_over_what_the_spec_says(spread: str, key: str | None) -> None:
    spec = eu_pod(group(rollout={"placement": {"spread": spread}}))["spec"]
    constraints = spec.get("topologySpreadConstraints", [])
    assert [constraint["topologyKey"] for constraint in constraints] == ([] if key is None else [key])
    for constraint in constraints:
        labels = constraint["labelSelector"]["matchLabels"]
        assert labels == {names.LABEL_GROUP_UID: UID, names.LABEL_ROLE: "eu"}
        assert constraint["whenUnsatisfiable"] == "ScheduleAnyway"


def test_a_spread_of_the_users_own_stays_alone() -> None:
    own = [{"topologyKey": "kubernetes.io/hostname", "maxSkew": 5, "whenUnsatisfiable": "DoNotSchedule"}]
    spec = eu_pod(group(rollout={"template": template(topologySpreadConstraints=own)}))["spec"]
    assert spec["topologySpreadConstraints"] == own


def test_nodes_to_avoid_are_added_to_what_the_user_prefers() -> None:
    own = {"weight": 1, "preference": {"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}}
    preferring = template(affinity={"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [own]}})
    spec = eu_pod(group(rollout={"template": preferring}), avoid_nodes=("n1", "n2"))["spec"]
    first, ours = spec["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert first == own
    assert ours["weight"] == 100
    avoided = [(item["key"], item["operator"], item["values"]) for item in ours["preference"]["matchFields"]]
    assert avoided == [("metadata.name", "NotIn", ["n1"]), ("metadata.name", "NotIn", ["n2"])]


def test_the_region_is_selected_where_nodes_have_that_label_and_the_template_does_not_choose() -> None:
    def selector(region: str | None, **spec: Any) -> Document:
        views = clusters(frankfurt={"nodes": {"n": NodeView("n", ready=True, region=region)}})
        made = eu_pod(group(rollout={"template": template(**spec)}), views=views)
        return dict(made["spec"].get("nodeSelector", {}))

    assert selector("eu-central-1") == {"topology.kubernetes.io/region": "eu-central-1"}
    assert selector(None) == selector("eu-north-1") == {}
    assert selector("eu-central-1", nodeSelector={"topology.kubernetes.io/region": "x"}) == {
        "topology.kubernetes.io/region": "x"
    }


def test_a_claimed_spool_is_given_to_the_pods_group_unless_the_template_has_one() -> None:
    claim = {"storage": {"type": "PersistentVolumeClaim"}}
    spec = eu_pod(group(runtime=claim))["spec"]
    volume = named(spec["volumes"], names.SPOOL_VOLUME)
    assert volume["persistentVolumeClaim"]["claimName"] == names.spool_claim_name(KEY, "eu", 0)
    assert spec["securityContext"] == {"fsGroup": 65532, "fsGroupChangePolicy": "OnRootMismatch"}
    own = group(runtime=claim, rollout={"template": template(securityContext={"fsGroup": 7})})
    assert eu_pod(own)["spec"]["securityContext"] == {"fsGroup": 7}
    assert "securityContext" not in eu_pod()["spec"]


def test_the_spool_leaves_room_in_its_volume() -> None:
    made = eu_pod()
    budget_bytes = int(environment(sidecar_of(made))[names.ENV_SPOOL_BYTES])
    assert budget_bytes < int(named(made["spec"]["volumes"], names.SPOOL_VOLUME)["emptyDir"]["sizeLimit"])


def test_a_shared_gpu_is_the_same_claim_in_both_containers() -> None:
    claims = [{"name": "gpu", "request": "big"}]
    engine = {**ENGINE, "resources": {"claims": claims, "limits": {"memory": "1Gi"}}}
    shared = template(containers=[engine], resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "one"}])
    spec = eu_pod(group(rollout={"template": shared}, sync={"gpuAccess": "CudaIpc"}))["spec"]
    assert spec["containers"][0]["resources"] == engine["resources"]
    sidecar = named(spec["initContainers"], names.RUNTIME_CONTAINER)
    assert sidecar["resources"]["claims"] == claims
    assert "claims" not in named(spec["initContainers"], names.LIBRARY_CONTAINER)["resources"]
    assert spec["shareProcessNamespace"] is True
    assert environment(spec["containers"][0])["SYNCGROUP_GPU_ACCESS"] == "CudaIpc"
    shared["spec"]["hostPID"] = True  # Kubernetes refuses both together, and this one shows all processes already
    host = eu_pod(group(rollout={"template": shared}, sync={"gpuAccess": "CudaIpc"}))["spec"]
    assert "shareProcessNamespace" not in host
    plain = eu_pod(group(rollout={"template": shared}))["spec"]
    assert "shareProcessNamespace" not in plain
    assert "claims" not in named(plain["initContainers"], names.RUNTIME_CONTAINER)["resources"]


def test_a_user_process_looks_for_the_gpu_worker_where_its_sidecar_runs_it() -> None:
    engine = {**ENGINE, "securityContext": {"runAsUser": 1000}, "resources": {"claims": [{"name": "gpu"}]}}
    spec = eu_pod(group(rollout={"template": template(containers=[engine])}, sync={"gpuAccess": "CudaIpc"}))["spec"]
    sidecar, (user,) = named(spec["initContainers"], names.RUNTIME_CONTAINER), spec["containers"]
    runs, looks = from_environment(environment(sidecar)), LibrarySettings.read(None, environment(user))
    assert (runs.gpu_access, looks.gpu_access) == ("CudaIpc", "CudaIpc")
    assert str(runs.worker_socket) == looks.worker_socket
    shared = mounts(sidecar)[names.RUN_VOLUME]
    assert mounts(user)[names.RUN_VOLUME] == shared == str(runs.worker_socket.parent)
    assert sidecar["securityContext"]["runAsUser"] == 1000, "memory is shared by its user"


def test_variables_of_the_spec_reach_the_sidecar_and_win_over_its_home() -> None:
    variables = [{"name": "HOME", "value": "/cache"}, {"name": "OTEL_SDK_DISABLED", "value": "true"}]
    container = sidecar_of(eu_pod(group(runtime={"env": variables})))
    found = environment(container)
    assert len(found) == len(container["env"])  # no name twice
    assert (found["HOME"], found["OTEL_SDK_DISABLED"]) == ("/cache", "true")
    assert environment(sidecar_of(eu_pod()))["HOME"] == names.TMP_DIR


def hashes(of: SyncGroup, **changes: Any) -> dict[str, str]:
    return dict(template_hashes(of, UID, changes.get("image", IMAGE), changes.get("library", LIBRARY)))


def test_the_hash_follows_what_a_pod_is_built_from_and_nothing_else() -> None:
    usual = hashes(group())
    assert set(usual) == {"trainer", "eu"}
    for other in (
        group(suspend=True),
        group(rollout={"replicas": 9, "maxUnavailable": 3}),
        group(lease={"durationSeconds": 60}),
    ):
        assert hashes(other) == usual
    changed = hashes(group(rollout={"template": template(priority=1)}))
    assert changed["trainer"] == usual["trainer"]
    assert changed["eu"] != usual["eu"]
    for both in (
        hashes(group(), image="other"), hashes(group(), library=LibraryFacts("f" * 64)),
        hashes(group(runtime={"library": "None"})),
    ):  # fmt: skip
        assert not set(both.values()) & set(usual.values())


def test_pods_carry_the_hash_whatever_their_place_term_and_past() -> None:
    expected = hashes(group())
    moved = eu_pod(place=Place("local", "us-east-1"), avoid_nodes=("n1",))
    assert moved["metadata"]["annotations"][names.ANNOTATION_TEMPLATE_HASH] == expected["eu"]
    trainer = pod(observation(), TRAINER_SEAT, EXTRAS)
    assert trainer is not None
    assert trainer["metadata"]["annotations"][names.ANNOTATION_TEMPLATE_HASH] == expected["trainer"]


def test_a_template_with_a_problem_has_no_hash() -> None:
    assert set(hashes(group(rollout={"template": template(containers="x")}))) == {"trainer"}


def test_the_template_itself_is_left_alone() -> None:
    of = group(rollout={"template": template(securityContext={}, affinity={"nodeAffinity": {}}, volumes=[])})
    before = copy.deepcopy(of.to_document())
    eu_pod(of, avoid_nodes=("n1",))
    assert of.to_document() == before


def test_a_served_folder_is_the_sidecars_business() -> None:
    served = {"volume": "models", "base": "base", "path": "now/served", "graceSeconds": 5}
    models = template(volumes=[{"name": "models", "emptyDir": {}}])
    spec = eu_pod(group(rollout={"template": models, "servedFolder": served}))["spec"]
    sidecar = named(spec["initContainers"], names.RUNTIME_CONTAINER)
    assert mounts(sidecar)["models"] == names.SERVED_DIR
    settings = from_environment(environment(sidecar))
    assert str(settings.served_folder) == f"{names.SERVED_DIR}/now/served"
    assert str(settings.served_base) == f"{names.SERVED_DIR}/base"
    assert settings.served_grace_s == 5
    assert spec["securityContext"]["fsGroup"] == sidecar["securityContext"]["runAsUser"]
    assert names.ENV_SERVED_FOLDER not in environment(sidecar_of(eu_pod()))
