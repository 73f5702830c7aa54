from __future__ import annotations

import datetime
from dataclasses import replace
from typing import Any

import pytest

from sync_runtime.contract import names
from sync_runtime.contract.status import Condition, SyncGroupStatus
from syncgroup_operator import reasons
from syncgroup_operator.planning.decide import hold
from syncgroup_operator.planning.decision import Seat
from syncgroup_operator.planning.observation import ClusterProblem, Observation, Place, PodTrouble, Slot
from syncgroup_operator.planning.problems import Failure, TemplateProblem
from syncgroup_operator.planning.state import GroupState
from syncgroup_operator.planning.status import status_of
from tests.unit.contract import wire_samples
from tests.unit.planning.world import World, fill, group

ROLLOUTS = ({"name": "eu", "replicas": 3}, {"name": "asia", "cluster": "far", "region": "asia", "replicas": 2})
DAY = datetime.timedelta(days=1)


def running(**spec: Any) -> World:
    world = World(group(*ROLLOUTS, **spec))
    fill(world)
    return world


def status(world: World, **arguments: Any) -> SyncGroupStatus:
    """Of one more pass, remembered as the API server would."""
    observation = world.observe()
    decision = world.step()
    found = status_of(observation, decision, **arguments)
    world.group = world.group.model_copy(update={"status": found})
    return found


def conditions(found: SyncGroupStatus) -> dict[str, Condition]:
    return {condition.type: condition for condition in found.conditions}


def shown(found: SyncGroupStatus, kind: str) -> tuple[str, str]:
    condition = conditions(found)[kind]
    return condition.status, condition.reason


def with_trouble(observation: Observation, slot: Slot, trouble: PodTrouble) -> Observation:
    local = observation.clusters["local"]
    pods = tuple(replace(pod, trouble=trouble, ready=False) if pod.slot == slot else pod for pod in local.pods)
    return replace(observation, clusters={**observation.clusters, "local": replace(local, pods=pods)})


def test_the_first_visit_says_at_once_that_the_group_is_not_ready() -> None:
    found = status(World(group(*ROLLOUTS)))
    assert shown(found, "Ready") == ("False", reasons.STARTING)
    assert shown(found, "Reconciling") == ("True", reasons.STARTING)
    assert shown(found, "Stalled")[0] == "False"
    assert found.conditions[0].type == "Ready"
    assert found.observed_generation == 1
    assert found.rollouts_ready == "0/5"


def test_a_group_at_rest_is_ready_and_its_status_does_not_change_with_time() -> None:
    world = running()
    found = status(world)
    assert {kind: shown(found, kind)[0] for kind in conditions(found)} == {
        "Ready": "True",
        "Reconciling": "False",
        "Stalled": "False",
        "TrainerReady": "True",
        "RolloutsReady": "True",
        "LinksHealthy": "Unknown",
        "ClustersReachable": "True",
        "IdentityValid": "Unknown",
        "Suspended": "False",
    }
    assert (found.term, found.plan_revision, found.rollouts_ready) == (1, 1, "5/5")
    assert [(region.cluster, region.region, region.ready) for region in found.regions] == [
        ("far", "asia", 2),
        ("local", "eu", 3),
    ]
    assert found.regions[0].relay == names.member_name(world.group.key, "asia", 0)
    world.pass_time(600.0)
    assert status(world) == found


def test_a_status_survives_the_trip_through_the_api_server() -> None:
    world = running()
    world.reports[Slot("trainer", 0)] = {"version": {"lineage": "a", "seq": 9, "step": 90}}
    found = status(world)
    assert SyncGroupStatus.parse(found.to_document()) == found


def test_the_worst_pods_reason_is_shown_with_its_name() -> None:
    world = running()
    decision = world.decide()
    slot = Slot("eu", 1)
    trouble = PodTrouble("ImagePullBackOff", 'Back-off pulling image "a"', "main")
    found = status_of(with_trouble(world.observe(), slot, trouble), decision)
    member = names.member_name(world.group.key, *slot)
    condition = conditions(found)["RolloutsReady"]
    assert (condition.status, condition.reason) == ("False", "ImagePullBackOff")
    assert condition.message == (
        f'4 of 5 members serve; {member} (local/eu), container main: ImagePullBackOff: Back-off pulling image "a"; '
        "correct image or imagePullSecrets in spec.rollouts[eu].template"
    )
    assert shown(found, "Ready") == ("False", "ImagePullBackOff")
    odd = status_of(with_trouble(world.observe(), slot, PodTrouble("no word!", "x" * 5000)), decision)
    assert shown(odd, "Ready") == ("False", reasons.POD_NOT_READY)
    assert len(conditions(odd)["Ready"].message) <= 1024


def test_the_moment_of_a_condition_moves_only_when_its_status_does() -> None:
    world = running()
    first = status(world)
    began = conditions(first)["Ready"].last_transition_time
    world.pass_time(100.0)
    assert conditions(status(world))["Ready"].last_transition_time == began
    world.pod("eu", 0).dead = True
    world.pass_time(45.0)
    lost = conditions(status(world))["Ready"]
    assert lost.status == "False"
    assert lost.last_transition_time > began
    world.settle(60.0)
    again = conditions(status(world))
    assert again["Ready"].status == "True"
    assert again["TrainerReady"].last_transition_time == began


def test_problems_of_the_template_stall_the_group_with_field_and_remedy() -> None:
    world = World(group(*ROLLOUTS))
    observation = world.observe()
    decision = hold(observation, GroupState.from_json(world.state))
    problem = TemplateProblem(
        reasons.CONTAINER_NOT_FOUND, "spec.rollouts[eu].container", "no container is called engine; name one that is"
    )
    found = status_of(observation, decision, [problem])
    sentence = "spec.rollouts[eu].container: no container is called engine; name one that is"
    for kind in ("Stalled", "Ready"):
        condition = conditions(found)[kind]
        assert (condition.reason, condition.message) == (reasons.CONTAINER_NOT_FOUND, sentence)
    assert shown(found, "Stalled")[0] == "True"
    assert shown(found, "Reconciling")[0] == "False"
    assert not any(seat.create for seat in decision.seats)


def test_failures_that_a_retry_may_mend_are_progress_and_others_stall() -> None:
    world = running()
    retried = Failure("far", "apply ConfigMap ml/x", "the server asks us to wait")
    found = status(world, failures=[retried])
    assert shown(found, "Reconciling") == ("True", reasons.PROGRESSING)
    assert "far: apply ConfigMap ml/x: the server asks us to wait" in conditions(found)["Reconciling"].message
    refused = Failure("far", "apply Pod ml/x", "admission said no", retry=False, reason=reasons.DENIED)
    found = status(world, failures=[retried, refused])
    assert shown(found, "Stalled") == ("True", reasons.DENIED)


def test_a_lost_cluster_is_named_with_its_moment_and_held() -> None:
    world = running()
    status(world)
    world.cut("far")
    lost = world.clusters["far"].lost_time
    world.pass_time(100.0)
    found = status(world)
    assert shown(found, "ClustersReachable") == ("False", reasons.UNREACHABLE)
    assert shown(found, "RolloutsReady") == ("False", reasons.UNREACHABLE)
    assert shown(found, "Reconciling")[0] == "False"
    (entry,) = found.lost_clusters
    assert lost is not None
    assert (entry.name, entry.lost_time, entry.message) == ("far", "2027-01-31T12:00:30.000Z", "connection refused")
    world.clusters["far"].lost_time = None  # whoever kept it lost it; the group's own status still knows
    world.pass_time(100.0)
    assert status(world).lost_clusters == found.lost_clusters
    world.mend("far")
    world.settle(60.0)
    assert status(world).lost_clusters == []


def test_a_cluster_that_cannot_be_used_stalls_the_group() -> None:
    world = running()
    observation = world.observe()
    problem = ClusterProblem(reasons.NAMESPACE_NOT_ALLOWED, "SyncCluster far does not allow ml", permanent=True)
    far = replace(observation.clusters["far"], problem=problem)
    found = status_of(replace(observation, clusters={**observation.clusters, "far": far}), world.decide())
    assert shown(found, "Stalled") == ("True", reasons.NAMESPACE_NOT_ALLOWED)
    assert conditions(found)["Ready"].message == (
        "spec.rollouts[asia].cluster: cluster far: SyncCluster far does not allow ml"
    )


def test_what_is_refused_is_shown_before_what_is_not_there_yet() -> None:
    world = running()
    decision = world.decide()
    observation = with_trouble(world.observe(), Slot("eu", 1), PodTrouble("ErrImagePull", "not found"))
    refused = Failure("local", "apply Pod a", "exceeded quota", reason=reasons.DENIED)
    found = status_of(observation, decision, failures=(Failure("local", "apply Pod b", "409"), refused))
    assert shown(found, "Ready") == ("False", reasons.DENIED)
    assert conditions(found)["Ready"].message.startswith("local: apply Pod a: exceeded quota; 4 of 5 members serve")
    assert shown(status(world), "Ready") == ("True", reasons.ALL_READY)


def test_versions_lag_and_link_figures_come_from_reports() -> None:
    world = running(sync={"maxStaleness": 2, "codec": "Fast"})
    ends = {"fromCluster": "local", "fromRegion": "us", "toCluster": "far", "toRegion": "asia"}
    link = {**wire_samples.link_report(), **ends}
    world.reports[Slot("trainer", 0)] = {"version": {"lineage": "a", "seq": 9, "step": 90}, "links": [link]}
    for slot, seq in ((("eu", 0), 9), (("eu", 1), 9), (("eu", 2), 8), (("asia", 0), 9), (("asia", 1), 6)):
        world.reports[Slot(*slot)] = {"version": {"lineage": "a", "seq": seq}, "syncMillis": 100 + seq}
    found = status(world)
    assert found.version is not None
    assert (found.version.seq, found.version.step, found.lag_versions, found.sync_millis) == (9, 90, 3, 109)
    asia, eu = found.regions
    assert (asia.lag_versions, eu.lag_versions) == (3, 1)
    assert asia.link is not None
    assert (asia.link.from_region, asia.link.streams, asia.link.utilisation_percent) == ("us", 8, 94)
    assert shown(found, "LinksHealthy") == ("False", reasons.REGIONS_STALE)
    for slot in world.reports:
        world.reports[slot] = {**world.reports[slot], "version": {"lineage": "a", "seq": 9}}
    link["rateBitsPerSecond"] = 475_000_000
    world.reports[Slot("eu", 0)]["syncMillis"] = 112
    found = status(world)
    assert (found.lag_versions, found.sync_millis) == (0, 109)  # nearly the same is not written again
    world.reports[Slot("eu", 0)]["syncMillis"] = 900
    assert status(world).sync_millis == 900
    for slot in world.reports:
        world.reports[slot].pop("syncMillis", None)
    assert status(world).sync_millis == 900  # nobody knows better
    assert shown(found, "LinksHealthy") == ("True", reasons.MEASURED)
    assert found.regions[0].link == asia.link  # nearly the same is not written again
    world.reports[Slot("trainer", 0)]["links"] = [{**link, "rateBitsPerSecond": 100_000_000}]
    world.pass_time(5.0)
    after = status(world).regions[0].link
    assert after is not None
    assert (after.rate_bits_per_second, after.measured_time) == (100_000_000, "2027-01-31T12:00:35.000Z")


def test_a_link_that_nothing_was_sent_over_shows_no_figures_and_takes_none_away() -> None:
    world = running(sync={"codec": "Fast"})
    ends = {"fromCluster": "local", "fromRegion": "us", "toCluster": "far", "toRegion": "asia"}
    measured = {**wire_samples.link_report(), **ends}
    figures = {"rateBitsPerSecond", "capacityBitsPerSecond", "rttMicros", "minRttMicros", "lossPpm"}
    idle = {key: value for key, value in measured.items() if key not in {*figures, "utilisationPercent"}}
    idle["payloads"] = 0
    world.reports[Slot("trainer", 0)] = {"links": [idle]}
    found = status(world)
    assert shown(found, "LinksHealthy") == ("Unknown", reasons.NOT_MEASURED)
    first = found.regions[0].link
    assert first is not None
    assert set(first.to_document()) == {"fromRegion", "codec", "streams", "bucketBytes", "message"}
    world.reports[Slot("trainer", 0)] = {"links": [measured]}
    second = status(world).regions[0].link
    assert second is not None
    assert (second.rate_bits_per_second, second.rtt_micros) == (472_000_000, 101_200)
    world.reports[Slot("trainer", 0)] = {"links": [{**idle, "streams": 4}]}  # a sender that began anew
    world.pass_time(5.0)
    third = status(world).regions[0].link
    assert third == second.model_copy(update={"streams": 4}), "the last figures stand, with their time"


def test_replacements_are_kept_newest_first_and_capped() -> None:
    world = World(group({"name": "eu", "replicas": 40}, lease={"maxConcurrentReplacements": 1000}))
    fill(world)
    for index in range(20):
        del world.clusters["local"].pods[Slot("eu", index)]
    first = status(world)
    assert len(first.replacements) == 20
    world.settle(60.0)
    world.change(lease={"maxConcurrentReplacements": 1000, "maxReplacementsPerHour": 1000})
    for index in range(20, 40):
        world.pod("eu", index).dead = True
    world.pass_time(45.0)
    found = status(world)
    assert (len(found.replacements), found.replacements_total) == (32, 40)
    assert {one.reason for one in found.replacements[:20]} == {reasons.LEASE_EXPIRED}
    assert found.replacements[20:] == first.replacements[:12]
    assert shown(found, "Reconciling") == ("True", reasons.REPLACING)


@pytest.mark.parametrize(
    ("expiry", "authority", "shown_as"),
    [
        (10 * DAY, 90 * DAY, ("True", reasons.VALID)),
        (DAY / 24, 90 * DAY, ("False", reasons.CERTIFICATE_EXPIRING)),
        (10 * DAY, 3 * DAY, ("False", reasons.AUTHORITY_EXPIRING)),
        (10 * DAY, -DAY, ("False", reasons.AUTHORITY_EXPIRED)),
    ],
)
def test_certificates_show_before_they_end(
    expiry: datetime.timedelta, authority: datetime.timedelta, shown_as: tuple[str, str]
) -> None:
    world = running()
    ends = (world.now + expiry).strftime("%Y-%m-%dT%H:%M:%SZ")
    world.reports[Slot("eu", 1)] = {"certificateExpiryTime": ends}
    found = status(world, authority_expiry=world.now + authority)
    assert shown(found, "IdentityValid") == shown_as


def test_a_suspended_group_says_so_and_comes_to_rest() -> None:
    world = running()
    world.change(suspend=True)
    found = status(world)
    assert shown(found, "Ready") == ("False", reasons.SUSPENDED)
    assert shown(found, "Reconciling")[0] == "True"
    world.settle(30.0)
    found = status(world)
    assert (shown(found, "Suspended")[0], shown(found, "Reconciling")[0]) == ("True", "False")
    assert found.rollouts_ready == "0/5"


def test_a_trainer_that_is_done_down_or_poisoned_is_told_apart() -> None:
    world = running()
    world.pod("trainer", 0).phase = "Succeeded"
    assert shown(status(world), "TrainerReady") == ("False", reasons.DONE)
    world = running(lease={"maxReplacementsPerHour": 0})
    world.pod("trainer", 0).dead = True
    world.pass_time(45.0)
    assert shown(status(world), "TrainerReady") == ("False", reasons.TRAINER_DOWN)
    world = running()
    trouble = {"reason": "ScrubFailed", "message": "3 blocks differ"}
    world.reports[Slot("eu", 0)] = {"state": "Poisoned", "trouble": trouble}
    found = status(world)
    assert shown(found, "RolloutsReady") == ("False", reasons.MEMBER_POISONED)
    assert "3 blocks differ" in conditions(found)["RolloutsReady"].message


def test_an_unknown_address_of_the_trainer_is_told_with_the_remedy() -> None:
    world = World(group(*ROLLOUTS, trainer={"exposure": {"type": "LoadBalancer"}}))
    fill(world)
    found = status(world)
    assert shown(found, "LinksHealthy") == ("False", reasons.TRAINER_UNREACHED)
    assert "spec.trainer.exposure.host" in conditions(found)["LinksHealthy"].message


def test_a_group_that_is_deleted_says_where_something_is_left() -> None:
    world = running()
    world.deleting = True
    found = status(world)
    assert shown(found, "Reconciling") == ("True", reasons.DELETING)
    assert "far, local" in conditions(found)["Reconciling"].message
    assert shown(found, "Ready") == ("False", reasons.DELETING)


def test_a_rolling_change_and_scaling_down_are_told_apart() -> None:
    world = running()
    world.template = "v2"
    assert shown(status(world), "Reconciling") == ("True", reasons.ROLLING_OUT)
    world = running()
    eu, asia = (rollout.to_document() for rollout in world.group.spec.rollouts)
    world.change(rollouts=[{**eu, "replicas": 1}, asia])
    found = status(world)
    assert shown(found, "Reconciling") == ("True", reasons.SCALING)
    assert found.rollouts_ready == "3/3"


def test_regions_of_a_status_are_capped() -> None:
    world = running()
    decision = world.decide()
    seats = [Seat(Slot("eu", index), Place("local", f"r{index}")) for index in range(200)]
    assert len(status_of(world.observe(), replace(decision, seats=tuple(seats))).regions) == 128
