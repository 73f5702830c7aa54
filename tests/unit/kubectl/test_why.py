"""`why`: from what was read to sentences and the next command; every reason of the operator has an answer."""

from __future__ import annotations

import pytest

from syncgroup.looking.advice import CONTAINERS, REASONS, advice_for
from syncgroup.looking.facts import ClusterFact, EventFact, member_facts
from syncgroup.looking.why import Answer, answer_document, answer_lines, why
from syncgroup_operator import reasons
from tests.unit.kubectl.samples import NOW, facts, group, lease, member, pod, status, waiting

TYPES = {
    reasons.READY, reasons.RECONCILING, reasons.STALLED, reasons.TRAINER_READY, reasons.ROLLOUTS_READY,
    reasons.LINKS_HEALTHY, reasons.CLUSTERS_REACHABLE, reasons.IDENTITY_VALID,
}  # fmt: skip
"""Types of conditions that are no reasons too."""
ALL_REASONS = sorted(
    {value for name, value in vars(reasons).items() if name.isupper() and isinstance(value, str)} - TYPES
)


def told(answer: Answer) -> str:
    return "\n".join(answer_lines(answer))


def test_a_healthy_group_is_said_to_be_healthy_and_needs_no_command() -> None:
    answer = why(facts())
    assert answer.healthy
    assert answer_lines(answer) == [
        "rl/grpo is healthy: the trainer and 3 members serve; version 128, the slowest 2 behind"
    ]
    assert not answer.next_commands


def test_no_reason_of_the_operator_is_without_advice() -> None:
    assert [reason for reason in ALL_REASONS if reason not in REASONS] == []
    assert set(REASONS) <= set(ALL_REASONS)


@pytest.mark.parametrize("reason", ALL_REASONS)
def test_every_reason_that_keeps_a_group_from_ready_is_told_with_its_meaning(reason: str) -> None:
    said = f"cluster frankfurt: {member('near')}: something is wrong"
    conditions = dict.fromkeys((reasons.READY, reasons.ROLLOUTS_READY), ("False", reason, said))
    answer = why(facts(status=status(conditions)))
    assert not answer.healthy
    assert answer.headline == f"rl/grpo is not Ready: {reason}"
    first = answer.findings[0]
    assert (first.reason, first.weight) == (reason, "cause")
    assert said in first.sentence
    assert first.meaning == advice_for(reason).meaning
    assert f"    → {first.meaning}" in answer_lines(answer)
    assert len(first.commands) == len(advice_for(reason).commands), "a command has a word that is not filled in"
    assert all("{" not in command or "'{" in command for command in first.commands)


@pytest.mark.parametrize("reason", sorted(CONTAINERS))
def test_what_a_kubelet_says_of_a_container_is_told_with_the_pods_name(reason: str) -> None:
    broken = {"containerStatuses": [{"name": "main", "state": {"waiting": {"reason": reason, "message": "its words"}}}]}
    members = member_facts(group(), [pod("near", 0, ready=False, **broken)], [], NOW)
    answer = why(facts(members=members, status=status({reasons.READY: ("False", reason, "1 of 3 members serve")})))
    sentence = next(one.sentence for one in answer.findings if "container main" in one.sentence)
    assert member("near") in sentence
    assert "its words" in sentence
    assert any(member("near") in command or "kubectl edit" in command for command in answer.next_commands)


def test_a_reason_that_nobody_knows_is_shown_with_its_own_words() -> None:
    members = member_facts(group(), [pod("near", 0, ready=False, **waiting("OddThing", "quite odd"))], [], NOW)
    answer = why(facts(members=members, status=status({reasons.READY: ("False", "OddThing", "quite odd")})))
    assert "OddThing: quite odd" in told(answer)
    assert f"kubectl describe pod -n rl {member('near')}" in answer.next_commands


def test_a_stalled_group_names_its_cause_before_everything_else() -> None:
    said = "spec.rollouts[eu].cluster: cluster frankfurt: there is no such SyncCluster"
    conditions = {
        reasons.STALLED: ("True", reasons.CLUSTER_NOT_FOUND, said),
        reasons.READY: ("False", reasons.CLUSTER_NOT_FOUND, said),
    }
    answer = why(facts(status=status(conditions), clusters=()))
    assert [one.reason for one in answer.findings] == [reasons.CLUSTER_NOT_FOUND]
    assert answer.next_commands[0] == "kubectl syncgroup cluster list"
    assert "kubectl syncgroup cluster register frankfurt" in answer.next_commands[1]


def test_a_group_that_no_operator_has_seen_says_so() -> None:
    answer = why(facts(status=None))
    assert answer.headline == "rl/grpo is not Ready: no operator has looked at it yet"
    assert "kubectl get pods -A -l app.kubernetes.io/name=syncgroup" in answer.next_commands


def test_a_spec_that_changed_since_the_last_look_is_not_called_healthy() -> None:
    answer = why(facts(generation=4))
    assert not answer.healthy
    assert "was not looked at yet" in answer.headline


def test_a_group_of_another_controller_is_explained_by_its_field() -> None:
    answer = why(facts(status=None, spec={"managedBy": "kueue.x-k8s.io/multikueue"}))
    assert "spec.managedBy is kueue.x-k8s.io/multikueue" in told(answer)


def test_a_group_that_is_being_deleted_is_not_healthy() -> None:
    assert why(facts(deleting=True)).headline == "rl/grpo is being deleted"


def test_an_old_lease_is_a_sign_with_both_figures() -> None:
    members = member_facts(group(), [pod("near", 1)], [lease("near", 1, age_s=95)], NOW)
    answer = why(facts(members=members))
    assert f"member {member('near', 1)} renewed its lease 95 s ago, and it lasts 40 s" in told(answer)
    assert answer.healthy  # the operator judges by its own clock, not this machine


def test_a_member_that_is_poisoned_can_be_replaced_by_the_command_that_is_shown() -> None:
    trouble = {"reason": "ScrubFailed", "message": "live weights are not version 128: 2 blocks differ"}
    told_by = lease("near", 0, state="Poisoned", trouble=trouble)
    answer = why(facts(members=member_facts(group(), [pod("near", 0)], [told_by], NOW)))
    finding = next(one for one in answer.findings if one.reason == reasons.MEMBER_POISONED)
    assert "2 blocks differ" in finding.sentence
    assert f"kubectl syncgroup replace -n rl {member('near')}" in finding.commands


def test_a_cluster_that_is_not_connected_is_named_with_since_when() -> None:
    away = ClusterFact("frankfurt", "False", reasons.UNREACHABLE, "connection timed out", lost_age_s=600)
    answer = why(facts(clusters=(away,)))
    assert "cluster frankfurt is not connected since 10 min: connection timed out" in told(answer)
    assert "kubectl describe synccluster frankfurt" in answer.next_commands


def test_a_lost_cluster_is_told_from_the_status_where_syncclusters_may_not_be_seen() -> None:
    lost = [{"name": "frankfurt", "lostTime": "2027-01-31T11:00:00Z", "reason": "Unreachable", "message": "timed out"}]
    answer = why(facts(clusters=(), status=status(lostClusters=lost), unseen=("you may not list syncclusters",)))
    assert "cluster frankfurt was lost at 2027-01-31T11:00:00Z: timed out" in told(answer)
    assert "you may not list syncclusters" in told(answer)


def test_recent_warnings_are_notes_and_old_ones_are_left_out() -> None:
    recent = EventFact("Warning", "LeaseExpired", "no renewal for 41 s", age_s=30, count=3)
    old = EventFact("Warning", "NodeLost", "its node is gone", age_s=9000)
    answer = why(facts(events=(recent, old, EventFact("Normal", "ScaledDown", "1 pod is removed", 5))))
    assert "30 s ago, 3 times: LeaseExpired: no renewal for 41 s" in told(answer)
    assert "NodeLost" not in told(answer)
    assert "ScaledDown" not in told(answer)


def test_requests_that_are_not_over_are_notes() -> None:
    waits = {"id": "r1", "type": "Replace", "member": member("near"), "state": "Waiting", "message": "it waits"}
    assert f"request r1 (Replace of {member('near')}) is Waiting: it waits" in told(
        why(facts(status=status(requests=[waits])))
    )


def test_words_of_a_cluster_cannot_move_the_cursor() -> None:
    answer = why(facts(status=status({reasons.READY: ("False", "Bad", "\x1b[2Jgone\rnow")})))
    assert "\x1b" not in told(answer)
    assert "\r" not in told(answer)


def test_the_answer_for_programs_has_the_same_words() -> None:
    seen = facts(status=status({reasons.READY: ("False", reasons.STARTING, "pods are starting")}))
    document = answer_document(seen, why(seen))
    assert (document["healthy"], document["name"]) == (False, "grpo")
    assert document["next"] == ["kubectl syncgroup top -n rl grpo"]
