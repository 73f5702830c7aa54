"""Configuration files of a real node: they parse, and say what matters."""

from __future__ import annotations

import dataclasses
import json
import tomllib
from pathlib import Path

import pytest
import yaml

from tools.devcluster import nodefiles
from tools.devcluster.components import Plane
from tools.devcluster.config import PAUSE_IMAGE
from tools.devcluster.nodefiles import NodeFiles
from tools.kube.build import Toolbox

MAX_SOCKET_PATH_BYTES = 107


@pytest.fixture
def files(plane: Plane, tools: Toolbox, tmp_path: Path) -> NodeFiles:
    """The files of one node without limits."""
    return NodeFiles(plane=plane, folder=tmp_path / "node", state=tmp_path / "run", tools=tools, cgroup=None)


@pytest.mark.parametrize("snapshotter", ["overlayfs", "native"])
def test_containerds_configuration_parses(files: NodeFiles, snapshotter: str) -> None:
    plugins = tomllib.loads(files.containerd(snapshotter))["plugins"]
    runtime, images = plugins["io.containerd.cri.v1.runtime"], plugins["io.containerd.cri.v1.images"]
    assert images["snapshotter"] == snapshotter
    assert images["pinned_images"]["sandbox"] == PAUSE_IMAGE
    assert runtime["containerd"]["runtimes"]["runc"]["options"]["BinaryName"] == "/box/runc-bubble"
    assert runtime["disable_apparmor"] is True
    assert runtime["restrict_oom_score_adj"] is True
    assert runtime["cni"] == {"bin_dirs": ["/box"], "conf_dir": str(files.folder / "cni")}
    assert plugins["io.containerd.server.v1.grpc"]["address"] == str(files.socket)


def test_without_limits_the_kubelet_touches_no_cgroup(files: NodeFiles) -> None:
    settings = files.kubelet()
    assert settings["cgroupsPerQOS"] is False
    assert settings["enforceNodeAllocatable"] == []
    assert "cgroupRoot" not in settings


def test_with_limits_the_kubelet_keeps_to_the_nodes_own_cgroup(files: NodeFiles) -> None:
    settings = dataclasses.replace(files, cgroup="devcluster-1-eu-west").kubelet()
    assert settings["cgroupsPerQOS"] is True
    assert settings["cgroupRoot"] == "/devcluster-1-eu-west"
    assert "enforceNodeAllocatable" not in settings


def test_the_kubelet_asks_who_is_there_and_evicts_nobody(files: NodeFiles) -> None:
    settings = files.kubelet()
    assert settings["authentication"]["anonymous"] == {"enabled": False}
    assert settings["authorization"] == {"mode": "Webhook"}
    assert set(settings["evictionHard"].values()) == {"0%"}
    assert settings["failCgroupV1"] is False


def test_pods_get_addresses_from_the_regions_range(files: NodeFiles) -> None:
    (plugin,) = files.cni()["plugins"]
    assert plugin["type"] == "ptp"
    assert plugin["ipam"]["ranges"] == [[{"subnet": files.plane.region.pod_cidr}]]


def test_all_files_are_written_and_parse(files: NodeFiles) -> None:
    files.write(snapshotter="native")
    assert yaml.safe_load(files.kubelet_config.read_text())["kind"] == "KubeletConfiguration"
    assert tomllib.loads(files.containerd_config.read_text())["version"] == 4
    assert json.loads((files.folder / "cni" / "10-devcluster.conflist").read_text())["cniVersion"] == "1.0.0"
    assert files.kubelet_root.is_dir()
    files.write(snapshotter="native")


def test_sockets_have_short_paths_however_long_the_folders_is(files: NodeFiles, tmp_path: Path) -> None:
    deep = dataclasses.replace(files, folder=tmp_path / ("x" * 200), state=Path("/run/devcluster") / ("r" * 40))
    root = next(flag for flag in nodefiles.kubelet_command(deep) if flag.startswith("--root-dir=")).partition("=")[2]
    longest = max(len(f"{root}/pod-resources/{2**31}"), len(f"{deep.socket}.ttrpc"))
    assert longest <= MAX_SOCKET_PATH_BYTES


def test_the_node_is_labelled_with_its_region(files: NodeFiles) -> None:
    command = nodefiles.kubelet_command(files)
    assert command[0] == "/box/kubelet"
    labels = "topology.kubernetes.io/region=eu-west,topology.kubernetes.io/zone=eu-west-a"
    assert f"--node-labels={labels}" in command
    assert f"--hostname-override={files.plane.region.node_name}" in command


def test_the_policy_for_one_id_takes_out_each_request_for_another() -> None:
    policy, binding = nodefiles.squash_policy()
    assert policy["kind"] == "MutatingAdmissionPolicy"
    assert binding["kind"] == "MutatingAdmissionPolicyBinding"
    assert binding["spec"]["policyName"] == policy["metadata"]["name"]
    (mutation,) = policy["spec"]["mutations"]
    expression = mutation["jsonPatch"]["expression"]
    for field in ("runAsUser", "runAsGroup", "runAsNonRoot", "fsGroup", "supplementalGroups"):
        assert f"/spec/securityContext/{field}" in expression
    for kind in ("containers", "initContainers"):
        assert f'/spec/{kind}/" + string(i) + "/securityContext/runAsUser' in expression
