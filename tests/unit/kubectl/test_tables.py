"""`top` and `links`: what a person sees, letter by letter, and what a program gets."""

from __future__ import annotations

import json

import pytest
import yaml

from sync_runtime.contract.plan import BucketPlan, LinkPlan, StreamPlan
from syncgroup.looking.documents import rendered
from syncgroup.looking.facts import EventFact, event_fact, member_facts, plan_fact
from syncgroup.looking.links import link_documents, link_lines
from syncgroup.looking.top import SHOWN_MEMBERS, group_document, group_lines, groups_lines
from syncgroup.terminal import age, clean, micros, painted, rate, share, size, table
from syncgroup_operator import reasons
from tests.unit.contract.wire_samples import plan as plan_document
from tests.unit.kubectl.samples import NOW, facts, group, lease, member, pod, status

TOP = """\
rl/grpo  Ready  version 128 (step 1280) · lag 2 · sync 1.24 s · rollouts 3/3 · term 2 · plan 17 · replaced 1

REGION         MEMBERS  VERSION  LAG  LINK          RATE        STREAMS  BUCKET  LEASE
local/us-east  2/2      128      0    -             -           -        -       7 s
frankfurt/eu   1/1      126      2    from us-east  472 Mbit/s  8        1 MiB   -

MEMBER                   REGION         STATE    VERSION  LAG  PARENT                   LEASE
grpo-trainer-0-tox5vaqt  local/us-east  Serving  128      0    -                        3 s
grpo-eu-0-phwaigjc       frankfurt/eu   Unseen   -        -    -                        -
grpo-near-0-bhc4m7vi     local/us-east  Serving  128      0    grpo-trainer-0-tox5vaqt  3 s
grpo-near-1-pdvdq6qy     local/us-east  Serving  127      1    grpo-trainer-0-tox5vaqt  7 s
note: members in frankfurt are seen with --remote frankfurt=CONTEXT, a context of yours for that cluster"""

GROUPS = """\
GROUP    READY   REGION         MEMBERS  VERSION  LAG  LINK          RATE        STREAMS  BUCKET  LEASE
rl/grpo  Ready   local/us-east  2/2      128      0    -             -           -        -       7 s
                 frankfurt/eu   1/1      126      2    from us-east  472 Mbit/s  8        1 MiB   -
rl/grpo  Unseen  -              -        -        -    -             -           -        -       -"""

LINKS = """\
LINK                          RATE        RTT     LOSS    STREAMS  BUCKET  CODEC  UTIL
local/us-east → frankfurt/eu  472 Mbit/s  101 ms  0.12 %  8        1 MiB   Tight  94 %

local/us-east → frankfurt/eu
  now: 8 streams: 12 gained less than 5 %"""


STORED_LINKS = """\
store s3://weights/rl/grpo  version 128  put at 472 Mbit/s
  StoreDenied: it does not let us in

LINK                    RATE        RTT  LOSS  STREAMS  BUCKET  CODEC  UTIL
us-east → frankfurt/eu  236 Mbit/s  -    -     -        -       Fast   -

us-east → frankfurt/eu
  store: s3://weights/rl/grpo
  now: it is away"""


def test_a_store_stands_where_the_streams_would() -> None:
    address = "s3://weights/rl/grpo"
    found = status(
        store={
            "address": address, "version": 128, "rateBitsPerSecond": 472_000_000, "reason": "StoreDenied",
            "message": "it does not let us in",
        }
    )  # fmt: skip
    found["regions"][1]["link"] = {
        "fromRegion": "us-east", "codec": "Fast", "rateBitsPerSecond": 236_000_000, "store": address,
        "message": "it is away",
    }  # fmt: skip
    stored = facts(status=found)
    assert "\n".join(link_lines(stored)) == STORED_LINKS
    assert link_documents(stored)[0]["store"] == address
    assert "from the store" in "\n".join(group_lines(stored))


def test_one_group_as_a_person_sees_it() -> None:
    assert "\n".join(group_lines(facts())) == TOP


def test_all_groups_as_a_person_sees_them() -> None:
    assert "\n".join(groups_lines([facts(), facts(status=None)])) == GROUPS


def test_links_as_a_person_sees_them() -> None:
    assert "\n".join(link_lines(facts())) == LINKS


def test_wide_tables_have_more_columns_and_the_same_rows() -> None:
    wide = group_lines(facts(), wide=True)
    assert wide[2].split()[-5:] == ["RTT", "LOSS", "UTIL", "CODEC", "RELAY"]
    assert len(wide) == len(TOP.splitlines())
    assert "bbr" in "\n".join(link_lines(facts(), wide=True))


def test_a_group_that_is_not_ready_says_why_and_what_to_type() -> None:
    lines = group_lines(facts(status=status({reasons.READY: ("False", reasons.STARTING, "pods are starting")})))
    assert lines[:3][1:] == ["  pods are starting", "  kubectl syncgroup why -n rl grpo"]


def test_open_requests_stand_in_the_head() -> None:
    waits = {"id": "r1", "type": "Replace", "member": member("near"), "state": "Waiting", "message": "it waits"}
    lines = group_lines(facts(status=status(requests=[waits])))
    assert lines[1] == f"  request r1: Replace {member('near')} is Waiting: it waits"


def test_colour_is_there_only_when_it_is_asked_for_and_changes_no_letter() -> None:
    plain, coloured = group_lines(facts()), group_lines(facts(), colour=True)
    assert "\x1b[" not in "\n".join(plain)
    assert "\x1b[32mReady\x1b[0m" in coloured[0]
    stripped = [line.replace("\x1b[0m", "") for line in coloured]
    for code in ("1", "2", "31", "32", "33"):
        stripped = [line.replace(f"\x1b[{code}m", "") for line in stripped]
    assert stripped == plain


def test_an_old_lease_is_red_and_a_leaving_pod_is_told() -> None:
    leaving = pod("near", 1)
    leaving["metadata"]["deletionTimestamp"] = "2027-01-31T11:59:00Z"
    members = member_facts(group(), [leaving, pod("near", 0)], [lease("near", 0, age_s=95)], NOW)
    text = "\n".join(group_lines(facts(members=members), colour=True))
    assert "\x1b[31m95 s\x1b[0m" in text
    assert "Leaving" in text


def test_many_members_are_cut_and_wide_shows_all() -> None:
    document = group().to_document()["spec"]["rollouts"][0]
    big = group(spec={"rollouts": [{**document, "replicas": 99}]})
    members = member_facts(big, [], [], NOW)
    seen = facts(members=members, spec={"rollouts": [{**document, "replicas": 99}]})
    assert f"and {100 - SHOWN_MEMBERS} more: -o wide" in group_lines(seen)
    assert len(group_lines(seen, wide=True)) > 100


def test_what_programs_get_is_json_and_yaml_of_the_same() -> None:
    document = group_document(facts())
    assert json.loads(rendered(document, "json")) == yaml.safe_load(rendered(document, "yaml")) == document
    assert document["status"]["version"]["seq"] == 128
    assert [one["leaseAgeSeconds"] for one in document["members"]] == [3.0, None, 3.0, 7.0]


def test_a_plan_adds_what_it_allows_and_links_that_carried_nothing_yet() -> None:
    plan = plan_fact({"data": {"plan.json": json.dumps(plan_document())}})
    assert plan is not None
    bounds = {"seed": 4, "min": 1, "max": 32}
    sizes = {"seed": 1 << 20, "min": 1 << 18, "max": 8 << 20}
    link = LinkPlan(
        from_cluster="local", from_region="us-east", codec="Fast", streams=StreamPlan(**bounds),
        bucket_bytes=BucketPlan(**sizes), message="not measured yet",
    )  # fmt: skip
    plan = plan.model_copy(update={"cluster": "frankfurt", "region": "eu", "links": [link]})
    lines = link_lines(facts(plans=(plan,)))
    assert "  plan: Fast, 4 streams (1 to 32), buckets of 1 MiB (0.25 to 8): not measured yet" in lines
    bare = link_documents(facts(plans=(plan,), members=[], status=None))
    assert [(one["sender"], one["receiver"], one["streams"]) for one in bare] == [
        ("local/us-east", "frankfurt/eu", None)
    ]


def test_a_group_without_links_says_how_they_come_to_be() -> None:
    assert link_lines(facts(members=[], status=None))[0].startswith("rl/grpo has no link yet")


@pytest.mark.parametrize("body", [{}, {"data": None}, {"data": {"plan.json": "{"}}, {"data": {"plan.json": 3}}])
def test_a_config_map_that_holds_no_plan_is_none(body: dict[str, object]) -> None:
    assert plan_fact(body) is None


def test_events_of_both_apis_are_read() -> None:
    new = {"type": "Warning", "reason": "A", "note": "n", "eventTime": "2027-01-31T11:59:30.000000Z"}
    series = {**new, "series": {"count": 4, "lastObservedTime": "2027-01-31T11:59:50.000000Z"}}
    old = {"type": "Normal", "reason": "B", "message": "m", "lastTimestamp": "2027-01-31T11:00:00Z", "count": 2}
    assert event_fact(new, NOW) == EventFact("Warning", "A", "n", 30.0, 1)
    assert event_fact(series, NOW) == EventFact("Warning", "A", "n", 10.0, 4)
    assert event_fact(old, NOW) == EventFact("Normal", "B", "m", 3600.0, 2)
    assert event_fact({"eventTime": "soon"}, NOW).age_s is None


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (rate(None), "-"), (rate(999), "999 bit/s"), (rate(1_500_000), "1.5 Mbit/s"), (rate(10**15), "1000 Tbit/s"),
        (size(0), "0 B"), (size(1023 * 1024), "1023 KiB"), (size(3 << 20), "3 MiB"), (micros(950), "0.95 ms"),
        (micros(2_500_000), "2.5 s"), (age(-3), "0 s"), (age(119), "119 s"), (age(7000), "117 min"),
        (age(90_000), "25 h"), (age(10**6), "12 d"), (share(50_000), "5 %"), (share(None), "-"),
    ],
)  # fmt: skip
def test_figures_are_short_and_have_their_unit(shown: str, expected: str) -> None:
    assert shown == expected


def test_a_table_is_as_wide_as_its_words_and_ends_without_spaces() -> None:
    lines = table(("A", "LONGER"), [("first", "x"), ("", "y")])
    assert lines == ["A      LONGER", "first  x", "-      y"]


def test_words_from_elsewhere_hold_nothing_that_a_terminal_obeys() -> None:
    assert clean("a\x1b[31mb\x07\x9bc\r") == "a?[31mb??c?"
    assert painted("  ", "bad", colour=True) == "  "
