"""The operator's settings from its environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from syncgroup_operator.settings import OperatorSettings, SettingsError, from_environment


def test_an_empty_environment_means_a_developers_machine() -> None:
    found = from_environment({})
    assert found.kubeconfig == Path.home() / ".kube" / "config"
    assert found.watch_namespaces == ()
    assert found.election == OperatorSettings().election


def test_in_a_pod_the_service_account_is_used_unless_a_kubeconfig_is_named() -> None:
    pod = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    assert from_environment(pod).kubeconfig is None
    assert from_environment(pod | {"KUBECONFIG": "/etc/kube"}).kubeconfig == Path("/etc/kube")


def test_numbers_and_lists_are_read() -> None:
    found = from_environment(
        {
            "SYNCGROUP_OPERATOR_WATCH_NAMESPACES": "a,b,",
            "SYNCGROUP_OPERATOR_RESYNC_S": "12.5",
            "SYNCGROUP_OPERATOR_LEASE_S": "4",
            "SYNCGROUP_OPERATOR_LEADER_ELECTION": "False",
        }
    )
    assert found.watch_namespaces == ("a", "b")
    assert (found.resync_s, found.election.lease_s, found.leader_election) == (12.5, 4.0, False)


@pytest.mark.parametrize("value", ["many", "-1", "nan", "70000"])
def test_a_number_out_of_range_is_refused_with_its_name(value: str) -> None:
    with pytest.raises(SettingsError, match="SYNCGROUP_OPERATOR_HEALTH_PORT"):
        from_environment({"SYNCGROUP_OPERATOR_HEALTH_PORT": value})
