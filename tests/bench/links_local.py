"""Without a shaped link: our streams beside a bare TLS loop, and one parent with many light children."""

from __future__ import annotations

import os
import statistics
import time

from tests.bench.links_lab import end, lab_of, lines_of, run_pair, start
from tests.bench.report import Report
from tools.linkemu import parse_link

TLS_BYTES = 400_000_000
TLS_GOAL = 0.85
LIGHT_MEMBERS = 64
LIGHT_BYTES = 60_000_000
LIGHT_PROCESSES = 2
RSS_GOAL_MB = 200.0
_ROUNDS = 5


def measure_tls(report: Report) -> None:
    """Both ends in one region, over its loopback: nothing but the CPU limits them."""
    with lab_of(2) as (lab, group, folder):
        parent = {
            "identity": str(group.trainer()),
            "size_bytes": TLS_BYTES,
            "payloads": _ROUNDS,
            "pause_s": 0.5,
            "warm_up_s": 1.0,
            "bucket_bytes": 1 << 20,
            "memory": str(folder / "links.json"),
            "bounds": [2, 2, 2],
        }
        child = {"identity": str(group.member("rollout-0")), "group": group.group_uid, "member": "rollout-0"}
        child["host"] = "127.0.0.1"
        rates: dict[str, list[float]] = {"ours": [], "bare": []}
        for _ in range(2):  # in turns: the machine's mood is the same for both
            bare = run_pair(lab, ("plain-parent", "plain-child"), parent | {"streams": 1}, child | {"streams": 1}, "aa")
            ours = run_pair(lab, ("parent", "child"), parent, child, "aa")
            rates["bare"] += [TLS_BYTES / line["seconds"] for line in bare.payloads[1:]]
            rates["ours"] += [TLS_BYTES / line["seconds"] for line in ours.payloads[1:]]
    ours_rate, bare_rate = statistics.median(rates["ours"]), statistics.median(rates["bare"])
    case = "mutual TLS on loopback"
    report.figure(case, "bare_loop", round(bare_rate * 8 / 1e9, 2), "Gbit/s")
    report.figure(case, "ours", round(ours_rate * 8 / 1e9, 2), "Gbit/s")
    report.figure(case, "ours_to_bare", round(ours_rate / bare_rate, 3), "share", at_least=TLS_GOAL)
    report.figure(case, "load", round(os.getloadavg()[0], 2), "processes")


def measure_light(report: Report) -> None:
    """One parent, 64 children with one stream each, the same payload to all of them."""
    with lab_of(2) as (lab, group, _):
        lab.emulator.set_link("a", "b", parse_link("2ms/max/0%"))
        names = [f"light-{number}" for number in range(LIGHT_MEMBERS)]
        config = {"identity": str(group.trainer()), "size_bytes": LIGHT_BYTES, "children": LIGHT_MEMBERS, "rounds": 2}
        sender = start(lab, "a", "many-parent", config)
        said = lines_of(sender)
        next(said)
        share = LIGHT_MEMBERS // LIGHT_PROCESSES
        crowds = [
            start(lab, "a", "many-children", {"group": group.group_uid, "host": "127.0.0.1", "members": [
                {"member": name, "identity": str(group.member(name))} for name in names[at : at + share]]})
            for at in range(0, LIGHT_MEMBERS, share)
        ]  # fmt: skip
        began_s = time.monotonic()
        rounds = [line for line in said if "round" in line]
        sender.wait(60)
        received = [line for crowd in crowds for line in end(crowd) if "received" in line]
    case = f"{LIGHT_MEMBERS} light members"
    complete = sum(line["received"] >= 2 * LIGHT_BYTES for line in received)
    report.figure(case, "members_complete", complete, "members", at_least=LIGHT_MEMBERS)
    report.figure(case, "seconds_per_round", round(statistics.mean(line["seconds"] for line in rounds), 2), "s")
    grown = rounds[-1]["rss_mb"] / rounds[0]["rss_mb"]
    report.figure(case, "memory_growth", round(grown, 3), "x first round", at_most=1.1)
    report.figure(
        case, "rss_beside_payload", round(rounds[-1]["rss_mb"] - LIGHT_BYTES / 1e6, 1), "MB", at_most=RSS_GOAL_MB
    )
    report.figure(case, "took", round(time.monotonic() - began_s, 1), "s")
