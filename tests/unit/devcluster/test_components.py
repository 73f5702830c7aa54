"""Command lines of the control plane: the flags without which something fails or is weaker than a real one."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from tools.devcluster import components
from tools.devcluster.components import Plane
from tools.kube.build import Toolbox


def test_a_loopback_address_gets_no_endpoint_reconciler(plane: Plane, tools: Toolbox) -> None:
    assert "--endpoint-reconciler-type=none" in components.apiserver(plane, tools)
    real = dataclasses.replace(plane, advertise="10.231.0.12")
    assert not any("reconciler" in flag for flag in components.apiserver(real, tools))


def test_the_api_server_checks_like_a_real_one(plane: Plane, tools: Toolbox) -> None:
    flags = components.apiserver(plane, tools)
    assert flags[0] == "/box/kube-apiserver"
    assert "--authorization-mode=Node,RBAC" in flags
    assert "--enable-admission-plugins=NodeRestriction" in flags
    assert f"--audit-log-path={plane.logs / 'eu-west-audit.log'}" in flags
    assert f"--client-ca-file={plane.pki / 'ca.crt'}" in flags
    assert f"--kubelet-certificate-authority={plane.pki / 'ca.crt'}" in flags
    assert not any("anonymous" in flag or "AlwaysAllow" in flag for flag in flags)


def test_etcd_listens_on_loopback_alone_and_never_waits_for_the_disk(plane: Plane, tools: Toolbox) -> None:
    flags = components.etcd(plane, tools)
    assert "--unsafe-no-fsync" in flags
    urls = [flag for flag in flags if "-urls=" in flag]
    assert len(urls) == 4
    assert all("=http://127.0.0.1:" in flag for flag in urls)
    assert f"--etcd-servers=http://127.0.0.1:{plane.etcd_port}" in components.apiserver(plane, tools)


def test_every_file_of_a_plane_lies_in_its_folder_or_the_logs(plane: Plane, tools: Toolbox) -> None:
    commands = [
        components.etcd(plane, tools),
        components.apiserver(plane, tools),
        components.controller_manager(plane, tools),
        components.scheduler(plane, tools),
        components.kube_proxy(plane, tools),
        components.coredns(plane, tools),
    ]
    paths = [part.partition("=")[2] or part for command in commands for part in command[1:]]
    inside = [Path(path) for path in paths if path.startswith("/")]
    assert len(inside) > 10
    assert all(path.is_relative_to(plane.folder) or path.is_relative_to(plane.logs) for path in inside)


def test_service_addresses_are_the_same_for_both_that_give_them_out(plane: Plane, tools: Toolbox) -> None:
    wanted = f"--service-cluster-ip-range={plane.region.service_cidr}"
    assert wanted in components.apiserver(plane, tools)
    assert wanted in components.controller_manager(plane, tools)


def test_controllers_get_a_budget_and_no_election(plane: Plane, tools: Toolbox) -> None:
    for command in (components.controller_manager(plane, tools), components.scheduler(plane, tools)):
        assert "--kube-api-qps=500" in command
        assert "--leader-elect=false" in command
        assert "--secure-port=0" in command


def test_kwok_leaves_real_nodes_alone(plane: Plane, tools: Toolbox) -> None:
    flags = components.kwok(plane, tools, Path("/stages.yaml"))
    assert "--manage-all-nodes=false" in flags
    assert "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake" in flags
    assert f"--cidr={plane.region.kwok_cidr}" in flags


def test_dns_answers_on_the_nodes_address(plane: Plane) -> None:
    text = components.corefile(plane)
    assert f"bind {plane.region.node_ip}\n" in text
    assert f"kubeconfig {plane.kubeconfig('admin')}\n" in text


def test_the_hosts_connection_limits_stay_untouched(plane: Plane, tools: Toolbox) -> None:
    flags = components.kube_proxy(plane, tools)
    assert "--proxy-mode=nftables" in flags
    assert [flag for flag in flags if "conntrack" in flag and not flag.endswith("=0")] == []
