"""The group's CA in its Secret: what was written is read back, what was edited is refused.

No replacement of it ever leaves a member that others do not trust.
"""

from __future__ import annotations

import base64
import datetime

import pytest
from cryptography import x509

from sync_runtime.identity.ca import make_ca, make_request, sign_request
from sync_runtime.identity.certificates import check_issued, read_pem
from sync_runtime.identity.keys import key_pem, make_key
from syncgroup_operator.errors import AuthoritySecretError
from syncgroup_operator.identity import authority
from syncgroup_operator.identity.authority import AuthorityPolicy, GroupAuthority, Rotation
from tests.unit.operator_identity.bodies import IDENTITY, NOW, UID

HOUR, DAY = datetime.timedelta(hours=1), datetime.timedelta(days=1)
POLICY = AuthorityPolicy(ca_lifetime=30 * DAY)
OTHER_UID = "99999999-0a53-4d7c-9a3b-6a0f5f8a1c11"


def fresh() -> GroupAuthority:
    return authority.make(UID, now=NOW, policy=POLICY)


def stepped(
    found: GroupAuthority, now: datetime.datetime, *, delivered: bool = True
) -> tuple[GroupAuthority, Rotation]:
    rotation = authority.due(found, now=now, policy=POLICY, delivered=delivered)
    return authority.advance(found, rotation, now=now, policy=POLICY), rotation


def reread(found: GroupAuthority) -> GroupAuthority:
    return authority.from_data(authority.to_data(found), UID)


def test_what_is_written_is_read_back() -> None:
    found = fresh()
    announced = authority.advance(found, Rotation.ANNOUNCE, now=NOW, policy=POLICY)
    switched = authority.advance(announced, Rotation.SWITCH, now=NOW, policy=POLICY)
    for one in (found, announced, switched):
        assert authority.to_data(reread(one)) == authority.to_data(one)
        assert reread(one).bundle == one.bundle
    assert [one.rotating for one in (found, announced, switched)] == [False, True, True]


def test_a_young_ca_is_left_as_it_is() -> None:
    found = fresh()
    assert stepped(found, NOW + 10 * DAY) == (found, Rotation.NONE)
    assert found.expires == NOW + 30 * DAY


def test_a_replacement_never_leaves_a_member_that_others_do_not_trust() -> None:
    """Every three hours for two lives of a CA: what was signed and lives is trusted by bundles that are hours old."""
    found, steps = fresh(), []
    signed: list[x509.Certificate] = []
    bundles: list[bytes] = []
    key = make_key()
    for hour in range(0, 60 * 24, 3):
        now = NOW + hour * HOUR
        found, rotation = stepped(found, now)
        found = reread(found)
        if rotation is not Rotation.NONE:
            steps.append(rotation)
        bundles.append(found.bundle.encode())
        pem = sign_request(
            found.signing, make_request(IDENTITY, key), IDENTITY, now=now, lifetime=POLICY.member_lifetime
        )
        signed.append(*read_pem(pem, "it"))
        signed = [one for one in signed if one.not_valid_after_utc > now]
        for bundle in {bundles[-1], bundles[max(-len(bundles), -2)]}:
            authorities = read_pem(bundle, "the bundle", 8)
            for one in (signed[0], signed[-1]):
                check_issued(one, authorities)
    assert steps[:3] == [Rotation.ANNOUNCE, Rotation.SWITCH, Rotation.DROP]
    assert len(steps) >= 6
    assert len(set(bundles)) > 4


def test_the_next_ca_signs_only_after_everyone_had_time_to_trust_it() -> None:
    announced, rotation = stepped(fresh(), NOW + 25 * DAY)
    assert rotation is Rotation.ANNOUNCE
    assert announced.bundle.count("BEGIN") == 2
    assert stepped(announced, NOW + 25 * DAY + HOUR)[1] is Rotation.NONE
    assert stepped(announced, NOW + 25 * DAY + 3 * HOUR, delivered=False)[1] is Rotation.NONE
    switched, rotation = stepped(announced, NOW + 25 * DAY + 3 * HOUR)
    assert rotation is Rotation.SWITCH
    assert announced.next is not None
    assert switched.signing.certificate == announced.next.certificate


def test_a_cluster_that_is_away_does_not_hold_a_replacement_up_for_ever() -> None:
    announced, _ = stepped(fresh(), NOW + 25 * DAY)
    assert stepped(announced, NOW + 28 * DAY, delivered=False)[1] is Rotation.NONE
    assert stepped(announced, NOW + 29 * DAY, delivered=False)[1] is Rotation.SWITCH


def test_a_ca_that_ended_unseen_is_replaced_at_once() -> None:
    late = NOW + 40 * DAY
    announced, first = stepped(fresh(), late)
    _, second = stepped(announced, late, delivered=False)
    assert (first, second) == (Rotation.ANNOUNCE, Rotation.SWITCH)


def test_an_end_that_is_near_is_worth_a_warning() -> None:
    assert not fresh().lags(NOW + 20 * DAY, POLICY)
    assert fresh().lags(NOW + 29 * DAY, POLICY)


def test_a_deleted_secret_does_not_cut_members_off_at_once() -> None:
    old = fresh()
    new = authority.make(UID, now=NOW + DAY, policy=POLICY, trusted=old.bundle)
    assert new.signing.certificate != old.signing.certificate
    assert old.signing.certificate_pem.decode() in new.bundle
    assert stepped(new, NOW + 2 * DAY)[1] is Rotation.NONE
    assert stepped(new, NOW + 3 * DAY)[1] is Rotation.DROP


@pytest.mark.parametrize("trusted", ["", "nonsense", "foreign", "ended"])
def test_a_bundle_that_is_no_use_counts_for_nothing(trusted: str) -> None:
    if trusted == "foreign":
        trusted = make_ca(OTHER_UID, now=NOW, lifetime=DAY).certificate_pem.decode()
    if trusted == "ended":
        trusted = make_ca(UID, now=NOW - 2 * DAY, lifetime=DAY).certificate_pem.decode()
    assert not authority.make(UID, now=NOW, policy=POLICY, trusted=trusted).rotating


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def edited(name: str) -> object:
    """A Secret that somebody edited."""
    found = fresh()
    data: dict[str, object] = dict(authority.to_data(found))
    announced = authority.to_data(authority.advance(found, Rotation.ANNOUNCE, now=NOW, policy=POLICY))
    both = authority.advance(reread(found), Rotation.ANNOUNCE, now=NOW, policy=POLICY)
    switched = authority.to_data(authority.advance(both, Rotation.SWITCH, now=NOW, policy=POLICY))
    other = make_ca(OTHER_UID, now=NOW, lifetime=DAY)
    variants: dict[str, object] = {
        "nothing": {},
        "no mapping": [],
        "absent": None,
        "no key": {"ca.crt": data["ca.crt"]},
        "no certificate": {"ca.key": data["ca.key"]},
        "another's key": data | {"ca.key": b64(make_ca(UID, now=NOW, lifetime=DAY).key_pem)},
        "of another group": data | {"ca.crt": b64(other.certificate_pem), "ca.key": b64(other.key_pem)},
        "not base64": data | {"ca.crt": "***"},
        "a number": data | {"ca.crt": 7},
        "no PEM": data | {"ca.crt": b64(b"hello")},
        "two certificates": data | {"ca.crt": b64(found.signing.certificate_pem + other.certificate_pem)},
        "a strange key": data | {"tls.crt": data["ca.crt"]},
        "half a next one": {name: value for name, value in announced.items() if name != "next.key"},
        "half a previous one": {name: value for name, value in switched.items() if name != "previousUntil"},
        "a previous end that is no time": switched | {"previousUntil": b64(b"soon")},
        "a next and a previous one": announced | {name: switched[name] for name in ("previous.crt", "previousUntil")},
        "a previous one of another group": switched | {"previous.crt": b64(other.certificate_pem)},
    }
    return variants[name]


@pytest.mark.parametrize(
    "name",
    [
        "nothing", "no mapping", "absent", "no key", "no certificate", "another's key", "of another group",
        "not base64", "a number", "no PEM", "two certificates", "a strange key", "half a next one",
        "half a previous one", "a previous end that is no time", "a next and a previous one",
        "a previous one of another group",
    ],
)  # fmt: skip
def test_a_secret_that_somebody_edited_is_refused_with_a_sentence(name: str) -> None:
    with pytest.raises(AuthoritySecretError, match="put the Secret back from a backup"):
        authority.from_data(edited(name), UID)


def test_a_members_certificate_is_no_ca() -> None:
    found = fresh()
    key = make_key()
    pem = sign_request(found.signing, make_request(IDENTITY, key), IDENTITY, now=NOW, lifetime=DAY)
    with pytest.raises(AuthoritySecretError, match="not one of a CA"):
        authority.from_data({"ca.crt": b64(pem), "ca.key": b64(key_pem(key))}, UID)
