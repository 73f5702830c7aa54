"""Trainer and rollout pods with injected runtimes on real nodes: they share weights over a shaped link, and heal.

A hub and another cluster in the bubble, the operator outside with its own rights. Every test begins with a group in
which everybody has the trainer's bits, and leaves one that gets there again.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from sync_runtime.contract import names
from tests.support import clusters, podsync
from tests.support.podsync import GROUP, GUESTS, SPACE, Bed, Line, Member
from tools.devcluster import hostcheck, runtimeimage
from tools.devcluster.config import Level

pytestmark = [pytest.mark.bubble, pytest.mark.timeout(400)]
RTT_MS = 40
LINK = f"us-east:eu-west={RTT_MS}ms/200M/0%"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    reason = hostcheck.why_impossible(Level.NODES)
    if reason is not None:
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("operator-sync")
    runtimeimage.compile_loops()
    image = folder / "runtime.tar"
    runtimeimage.build(image)
    cluster = clusters.start(Level.NODES, "2", images=(image,), links=(LINK,))
    try:
        bed = Bed(cluster, folder)
        try:
            bed.start()
            bed.settle()
            # In the first status that was ever written, too: then both have been as they are since the same moment.
            assert bed.condition("Stalled")["lastTransitionTime"] == bed.condition("Suspended")["lastTransitionTime"]
            yield bed
            _remove(bed)
        finally:
            bed.close()
    finally:
        cluster.down()


def _remove(bed: Bed) -> None:
    """A deleted group leaves nothing behind in any cluster."""
    bed.region.kubectl("delete", "syncgroup", GROUP, "-n", SPACE, "--timeout=60s")
    bed.wait(lambda: _everything(bed) == {}, "nothing left in any cluster", 30)


@pytest.fixture
def bed(running: Bed) -> Bed:
    """The group, with everybody well."""
    running.settle()
    return running


def test_every_rollout_has_the_trainers_bits(bed: Bed) -> None:
    told = {(line.lineage, line.seq): line.sum for line in bed.trainer.versions()}
    for member in bed.rollouts:
        shared = {(line.lineage, line.seq): line.sum for line in member.versions() if (line.lineage, line.seq) in told}
        assert shared, member.name
        assert shared.items() <= told.items(), member.name
        library = next(line["library"] for line in member.told() if "library" in line)
        assert library.startswith(f"{names.LIBRARY_DIR}/"), "the mounted library, not one of this machine"


def test_the_runtime_enters_as_a_native_sidecar_with_its_own_certificate_and_lease(bed: Bed) -> None:
    for member in bed.members:
        pod = member.pod()
        sidecar = next(one for one in pod["spec"]["initContainers"] if one["name"] == names.RUNTIME_CONTAINER)
        assert sidecar["restartPolicy"] == "Always"
        lease = member.lease()
        assert lease["holderIdentity"] == pod["metadata"]["uid"]
        assert lease["report"]["certificateExpiryTime"]
        _wait_renewed(bed, member, lease["renewTime"])
    for region in bed.cluster.regions.values():
        requests = region.api("GET", "/apis/certificates.k8s.io/v1/certificatesigningrequests")[1]["items"]
        ours = [one for one in requests if one["spec"]["signerName"] == names.SIGNER_NAME]
        assert ours
        assert all(one["status"].get("certificate") for one in ours)


def _wait_renewed(bed: Bed, member: Member, after: str) -> None:
    bed.wait(lambda: member.lease()["renewTime"] > after, f"a renewal by {member.name}")


def test_the_status_shows_versions_moving_and_the_link_between_the_regions(bed: Bed) -> None:
    first = bed.status["version"]["seq"]
    bed.wait(lambda: bed.status["version"]["seq"] > first + 1, "a version that moves")
    bed.wait(lambda: _far_rtt_micros(bed) >= RTT_MS * 1000, "the round-trip time of the shaped link")
    bed.wait(lambda: bed.status.get("syncMillis", 0) > 0, "the time that a version took")
    status = bed.status
    assert status["rolloutsReady"] == "3/3"
    place = next(one for one in status["regions"] if one["region"] == bed.far_region.name)
    assert place["relay"] in [member.name for member in bed.far]
    assert "3/3" in bed.kubectl_get()
    relayed = next(member for member in bed.far if member.name != place["relay"])
    assert relayed.lease()["report"]["parent"] == place["relay"], "a region receives every byte once"


def _far_rtt_micros(bed: Bed) -> int:
    place = next(one for one in bed.status["regions"] if one["region"] == bed.far_region.name)
    return int((place.get("link") or {}).get("rttMicros") or 0)


@pytest.mark.parametrize("words", ["pod_program.py", "syncgroup sidecar"])
def test_a_rollout_whose_process_is_killed_follows_again(bed: Bed, words: str) -> None:
    member = bed.near
    uid = member.uid
    pids = bed.pids(member, words)
    assert len(pids) == 1, f"{words}: {pids}"
    os.kill(pids[0], signal.SIGKILL)
    bed.wait(lambda: bed.pids(member, words) not in ([], pids), f"another process of {words}")
    bed.wait_follow(member)
    assert member.uid == uid, "the kubelet mends a container; nobody replaces the pod"


def test_a_restarted_operator_touches_nothing_and_weights_flow_without_one(bed: Bed) -> None:
    before = _everything(bed)
    revision = bed.status["planRevision"]
    bed.operator.kill()
    bed.wait_follow(*bed.rollouts)
    bed.start_operator()
    first = bed.status["version"]["seq"]
    bed.wait(lambda: bed.status["version"]["seq"] > first, "a status of the new process")
    assert _everything(bed) == before
    assert bed.status["planRevision"] >= revision
    assert bed.condition("Ready")["status"] == "True"


def _everything(bed: Bed) -> dict[str, str]:
    return podsync.children(bed.region, SPACE) | podsync.children(bed.far_region, GUESTS)


def test_a_deleted_trainer_comes_back_in_a_new_term_and_members_follow(bed: Bed) -> None:
    term, uids = bed.status["term"], {member.name: member.uid for member in bed.rollouts}
    lineage = bed.trainer.versions()[-1].lineage
    old = bed.trainer.uid
    bed.region.kubectl("delete", "pod", bed.trainer.name, "-n", SPACE, "--wait=false")
    bed.wait(lambda: bed.trainer.uid not in ("", old), "another trainer")
    bed.wait(lambda: _newest(bed.trainer, lineage) is not None, "a version of the new trainer")
    bed.wait_follow(*bed.rollouts, after=0)
    for member in bed.rollouts:
        newest = member.versions()[-1]
        assert newest.lineage != lineage, "the new trainer's line, not the old one's"
    assert bed.status["term"] > term
    assert {member.name: member.uid for member in bed.rollouts} == uids, "a rollout outlives its trainer"


def _newest(member: Member, not_of: str) -> Line | None:
    return next((line for line in reversed(member.versions()) if line.lineage != not_of and line.seq > 0), None)


def test_members_of_a_dead_node_lose_their_leases_and_are_replaced(bed: Bed) -> None:
    before = {member.name: member.uid for member in bed.far}
    total = bed.status.get("replacementsTotal", 0)
    bed.cluster.kill(bed.far_region.name, "node")
    try:
        bed.wait(lambda: all(member.uid not in ("", before[member.name]) for member in bed.far), "successors")
        bed.wait_follow(bed.near)
    finally:
        bed.cluster.restart(bed.far_region.name, "node")
    bed.settle()
    status = bed.status
    assert status["replacementsTotal"] >= total + 2
    reasons = {one["member"]: one["reason"] for one in status["replacements"]}
    assert {reasons[name] for name in before} <= {"LeaseExpired", "NodeLost", "RegionLost"}


def test_a_cluster_that_is_cut_off_is_held_and_goes_on_when_it_is_back(bed: Bed) -> None:
    before = {member.name: member.uid for member in bed.far}
    bed.cluster.cut(bed.far_region.name)
    try:
        bed.wait(lambda: bed.condition("ClustersReachable").get("status") == "False", "a cluster that is lost")
        lost = bed.status["lostClusters"]
        assert [one["name"] for one in lost] == [bed.far_region.name]
        bed.wait_follow(bed.near)
    finally:
        bed.cluster.mend(bed.far_region.name)
    bed.settle()
    assert {member.name: member.uid for member in bed.far} == before, "held: their places were kept"
    assert bed.status["lostClusters"] == []
