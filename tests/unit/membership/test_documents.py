"""What a lease says, and what an observer makes of a hostile one."""

from __future__ import annotations

import dataclasses
import datetime
import json

import pytest

from sync_runtime.contract.names import ANNOTATION_REPORT
from sync_runtime.contract.reports import MAX_REPORT_BYTES, MAX_REPORTED_LINKS, MemberReport
from sync_runtime.membership.documents import (
    MAX_LEASE_BYTES,
    micro_time,
    new_lease,
    pod_owner,
    read_lease,
    renewal_of,
    transitions_after,
)
from sync_runtime.membership.errors import MembershipError
from tests.unit.contract.wire_samples import link_report
from tests.unit.membership.reports import NAME, NOW, report


def test_a_lease_is_read_as_it_was_written() -> None:
    seen = read_lease(json.dumps(new_lease(NAME, report(), 15, NOW, transitions=2)))
    assert (seen.holder, seen.renew_time) == ("first", "2027-01-31T12:00:00.000000Z")
    assert (seen.duration_s, seen.transitions) == (15, 2)
    assert seen.report == report()


def test_times_have_six_digits_and_are_utc_wherever_the_member_is() -> None:
    tokyo = datetime.timezone(datetime.timedelta(hours=9))
    assert micro_time(NOW.astimezone(tokyo)) == "2027-01-31T12:00:00.000000Z"
    assert micro_time(NOW.replace(microsecond=1)) == "2027-01-31T12:00:00.000001Z"


def test_a_renewal_touches_neither_holder_nor_owner() -> None:
    change = renewal_of(report(), 15, NOW)
    assert set(change) == {"metadata", "spec"}
    assert set(change["metadata"]) == {"annotations"}
    assert set(change["spec"]) == {"renewTime", "leaseDurationSeconds"}


def test_a_lease_goes_with_its_pod() -> None:
    name = dataclasses.replace(NAME, namespace="ns", owner=pod_owner("worker-0", "uid-1"))
    metadata = new_lease(name, report(), 15, NOW)["metadata"]
    assert metadata["ownerReferences"] == [{"apiVersion": "v1", "kind": "Pod", "name": "worker-0", "uid": "uid-1"}]
    assert (metadata["namespace"], metadata["labels"]) == ("ns", {"syncgroup.dev/group": "demo"})


def test_changing_hands_is_counted() -> None:
    mine = new_lease(NAME, report(), 15, NOW, transitions=4)
    assert transitions_after(mine, "first") == 4
    assert transitions_after(mine, "second") == 5
    assert transitions_after({}, "first") == 1
    assert transitions_after({"spec": None}, "first") == 1


def longest_report() -> MemberReport:
    links = [link_report(f"{at:063d}") for at in range(MAX_REPORTED_LINKS)]
    links = [{**link, "message": '"\\' * 128} for link in links]
    return report(cluster="local", region="us-west-2", links=links)


def test_the_longest_report_fits_and_is_read_again() -> None:
    longest = longest_report()
    assert len(longest.to_json()) <= MAX_REPORT_BYTES
    text = json.dumps(new_lease(NAME, longest, 15, NOW))
    assert read_lease(text).report == longest


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"null",
        b"{}",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"spec": 1, "metadata": 2}',
        b'{"spec": {}, "metadata": {"annotations": null}}',
    ],
)
def test_hostile_leases_are_refused(data: bytes) -> None:
    with pytest.raises(MembershipError):
        read_lease(data)


def test_a_lease_beyond_the_limit_is_refused_unread() -> None:
    text = json.dumps(new_lease(NAME, report(), 15, NOW))
    with pytest.raises(MembershipError, match="at most"):
        read_lease(text + " " * MAX_LEASE_BYTES)


@pytest.mark.parametrize(
    ("field", "value"),
    [("holderIdentity", 5), ("renewTime", None), ("leaseDurationSeconds", "15"), ("leaseTransitions", True)],
)
def test_fields_of_the_wrong_kind_are_refused(field: str, value: object) -> None:
    document = new_lease(NAME, report(), 15, NOW)
    document["spec"][field] = value
    with pytest.raises(MembershipError, match="malformed"):
        read_lease(json.dumps(document))


def test_a_report_that_breaks_the_contract_is_refused() -> None:
    document = new_lease(NAME, report(), 15, NOW)
    document["metadata"]["annotations"][ANNOTATION_REPORT] = "{}"
    with pytest.raises(MembershipError, match="report"):
        read_lease(json.dumps(document))
