"""What the demo reads out of API objects, control APIs and logs; nothing that is missing is an error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from examples.grpo import plots
from sync_runtime.contract import names
from tools.demo import facts
from tools.demo.facts import Delta, Sent


def lease(uid: str = "u-1", **report: Any) -> dict[str, Any]:
    whole = {"member": "demo-europe-0", "role": "Rollout", "region": "eu-west", "state": "Serving", **report}
    annotations = {names.ANNOTATION_REPORT: json.dumps(whole)}
    return {"metadata": {"annotations": annotations}, "spec": {"holderIdentity": uid}}


def test_a_group_without_a_status_is_one_of_which_nothing_is_known() -> None:
    found = facts.group_facts({})
    assert found["ready"] is False
    assert found["seq"] is None
    assert found["lost"] == {}


def test_a_status_is_read() -> None:
    status = {
        "conditions": [{"type": "Ready", "status": "True", "message": "all serve"}],
        "version": {"seq": 7}, "planRevision": 3, "replacementsTotal": 1,
        "replacements": [{"member": "m", "reason": "LeaseExpired"}],
        "lostClusters": [{"name": "ap-south", "reason": "Unreachable"}],
    }  # fmt: skip
    found = facts.group_facts({"status": status})
    assert (found["ready"], found["ready_message"], found["seq"], found["plan_revision"]) == (True, "all serve", 7, 3)
    assert found["replacements"][0].reason == "LeaseExpired"
    assert found["lost"] == {"ap-south": "Unreachable"}


def test_a_member_is_read_out_of_its_lease() -> None:
    found = facts.member_of(lease(version={"seq": 5}, syncMillis=120, pauseMillis=3))
    assert found is not None
    assert (found.uid, found.region, found.seq, found.sync_millis, found.pause_millis) == ("u-1", "eu-west", 5, 120, 3)
    assert facts.member_of({"metadata": {}, "spec": {}}) is None, "it has not reported yet"


def test_links_are_the_trainers_and_one_per_region() -> None:
    one = {"toRegion": "eu-west", "streams": 2, "bucketBytes": 65536, "codec": "Fast", "payloads": 3}
    reports = [
        lease(role="Trainer", links=[one, {**one, "payloads": 9, "streams": 4}]),
        lease(links=[{**one, "toRegion": "us-east"}]),
    ]
    found = facts.links_of(reports)
    assert [(link.to_region, link.streams) for link in found] == [("eu-west", 4)]


def test_the_plan_of_a_link_is_found_by_where_it_comes_from() -> None:
    links = [
        {"fromRegion": region, "codec": "Tight", "streams": {"seed": seed}, "bucketBytes": {"seed": 65536}}
        for region, seed in (("eu-west", 1), ("us-east", 4))
    ]
    document = {"data": {names.PLAN_KEY: json.dumps({"revision": 8, "links": links})}}
    found = facts.planned_link(document, "us-east")
    assert found is not None
    assert (found.revision, found.streams) == (8, 4)
    assert facts.planned_link({}, "us-east") is None


def test_deltas_are_told_from_anchors_and_merged_ones_from_single_ones() -> None:
    keys = {"l/3-4.fast": 10, "l/0-4.fast": 30, "l/anchor-4": 100, "l/m:2-4.fast": 5}
    found = facts.deltas_of({"objects": [{"key": key, "bytes": size} for key, size in keys.items()]})
    assert found == (Delta(0, 4, "fast", 30), Delta(3, 4, "fast", 10))
    assert [one.merged for one in found] == [True, False]


def test_bytes_are_added_up_over_connections() -> None:
    sent = Sent()
    for told in ({"a": 10, "b": 5}, {"a": 25}, {"a": 3, "b": 6}):
        sent.take({"links": [{"peer": peer, "sentBytes": size} for peer, size in told.items()]})
    assert sent.total_bytes == 10 + 5 + 15 + 3 + 1


def test_lines_that_are_not_whole_are_left_out() -> None:
    step = json.dumps({"step": 1, "reward": 0.5, "lag": 0.0, "tokens": 9, "seconds": 0.5, "workers": 2})
    done = json.dumps({"done": True, "seq": 4, "digest": "d", "wire_sum": "s", "sum": "x"})
    lines = facts.lines_of(f"a warning\n{step}\n{done}\n{{broken}}\n" + step[:10])
    assert [one.step for one in facts.steps_of(lines)] == [1]
    last = facts.ended_of(lines)
    assert last is not None
    assert (last.seq, last.wire_sum) == (4, "s")


def test_a_workers_last_sum_counts() -> None:
    lines = [{"task": "0-1", "seq": 3, "tokens": 8}, {"seq": 3, "sum": "a"}, {"seq": 4, "sum": "b"}]
    assert facts.sum_of(lines) == (4, "b")
    assert facts.sum_of(lines[:1]) is None


def test_the_lines_that_tell_of_steps_are_what_plots_are_drawn_from(tmp_path: Path) -> None:
    line = {"step": 1, "reward": 0.5, "lag": 0.0, "tokens": 12, "seconds": 2.0, "sent_bytes": 7, "workers": 3}
    log = f'waiting\n{json.dumps(line)}\n{{"done": true, "seq": 4}}\n{{"step": 2, "rew'
    (tmp_path / "figures.jsonl").write_text(facts.figures_text(log))
    assert plots.read(tmp_path / "figures.jsonl") == [line]
