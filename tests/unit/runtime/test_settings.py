"""The settings of a sidecar in a pod, from the environment that operator and kubelet write."""

from __future__ import annotations

from pathlib import Path

import pytest

from sync_runtime.contract import names
from sync_runtime.errors import SettingsError
from sync_runtime.settings import DEFAULT_RING_BYTES, Address, everywhere, from_environment

ENVIRONMENT = {
    names.ENV_GROUP: "demo",
    names.ENV_GROUP_NAMESPACE: "team-a",
    names.ENV_GROUP_UID: "uid",
    names.ENV_MEMBER: "demo-trainer-0",
    names.ENV_ROLE: "trainer",
    names.ENV_CLUSTER: "local",
    names.ENV_REGION: "eu-west",
    names.ENV_PLAN: names.PLAN_PATH,
    names.ENV_PLAN_CONFIG_MAP: "demo-plan",
    names.ENV_TERM: "3",
    names.ENV_LEASE: "demo-trainer-0",
    names.ENV_POD_NAME: "demo-trainer-0",
    names.ENV_POD_NAMESPACE: "team-a",
    names.ENV_POD_UID: "pod-uid",
}


def test_what_the_operator_sets_is_enough() -> None:
    settings = from_environment(ENVIRONMENT)
    assert settings.in_pod
    assert (settings.role, settings.term, settings.plan_config_map) == ("trainer", 3, "demo-plan")
    assert settings.identity_dir == Path(names.IDENTITY_DIR)
    assert settings.trust_dir == Path(names.TRUST_DIR)
    assert settings.token_dir == Path(names.TOKEN_DIR)
    assert settings.listen == everywhere(names.DATA_PORT)
    assert settings.control == everywhere(names.CONTROL_PORT)
    assert settings.ring_bytes == DEFAULT_RING_BYTES


@pytest.mark.parametrize("name", ENVIRONMENT)
def test_what_is_missing_is_named(name: str) -> None:
    with pytest.raises(SettingsError, match=name):
        from_environment(ENVIRONMENT | {name: ""})


def test_a_rollout_has_no_term_of_its_own() -> None:
    settings = from_environment(ENVIRONMENT | {names.ENV_ROLE: "workers", names.ENV_TERM: ""})
    assert (settings.role, settings.term) == ("rollout", 0)


def test_a_gpu_worker_is_wanted_where_the_operator_says_so_and_listens_beside_the_sidecar() -> None:
    assert from_environment(ENVIRONMENT).gpu_access == "InProcess"
    settings = from_environment(ENVIRONMENT | {names.ENV_GPU_ACCESS: "CudaIpc", names.ENV_SOCKET: "/run/a/s.sock"})
    assert (settings.gpu_access, settings.worker_socket) == ("CudaIpc", Path("/run/a/gpu-worker.sock"))


def test_sizes_and_addresses_can_be_given() -> None:
    given = {names.ENV_RING_BYTES: "4096", names.ENV_SPOOL_BYTES: "8192", names.ENV_LISTEN: "[::1]:9"}
    settings = from_environment(ENVIRONMENT | given)
    assert (settings.ring_bytes, settings.spool_bytes, settings.listen) == (4096, 8192, Address("::1", 9))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (names.ENV_TERM, "0"),
        (names.ENV_TERM, "-1"),
        (names.ENV_TERM, "9" * 5000),
        (names.ENV_RING_BYTES, "1Gi"),
        (names.ENV_RING_BYTES, "0"),
        (names.ENV_SPOOL_BYTES, "9" * 5000),
        (names.ENV_CONTROL, "7480"),
        (names.ENV_GPU_ACCESS, "cuda"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_a_sentence(name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=r"must be|not an address"):
        from_environment(ENVIRONMENT | {name: value})


def test_a_served_folder_needs_a_base_and_a_rollout() -> None:
    rollout = ENVIRONMENT | {names.ENV_ROLE: "workers", names.ENV_SERVED_FOLDER: "/m/served"}
    settings = from_environment(rollout | {names.ENV_SERVED_BASE: "/m/base"})
    assert (settings.served_folder, settings.served_base) == (Path("/m/served"), Path("/m/base"))
    assert settings.served_grace_s == 30
    with pytest.raises(SettingsError, match=names.ENV_SERVED_BASE):
        from_environment(rollout)
    with pytest.raises(SettingsError, match="rollouts serve"):
        from_environment(rollout | {names.ENV_ROLE: "trainer", names.ENV_SERVED_BASE: "/m/base"})
    for wrong in ("-1", "4000", "soon"):
        with pytest.raises(SettingsError, match="seconds"):
            from_environment(rollout | {names.ENV_SERVED_BASE: "/m/base", names.ENV_SERVED_GRACE: wrong})
