"""The grammar of a member's name, from hostile text too."""

from __future__ import annotations

import dataclasses
import string

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sync_runtime.identity.errors import BadNameError, IdentityError, WrongGroupError, WrongMemberError, WrongRoleError
from sync_runtime.identity.names import MAX_URI_CHARACTERS, ROLES, MemberIdentity, expect, parse_uri

TRAINER = MemberIdentity("0f-1", "trainer", "us-east", "trainer-0")
GOOD = "spiffe://syncgroup.dev/group/0f-1/role/trainer/region/us-east/member/trainer-0"

LOWER = string.ascii_lowercase + string.digits + "-"


def words(alphabet: str, longest: int) -> st.SearchStrategy[str]:
    return st.text(alphabet, min_size=1, max_size=longest).map(lambda text: text.strip("-") or "a")


identities = st.builds(
    MemberIdentity,
    words(LOWER + string.ascii_uppercase, 64),
    st.sampled_from(ROLES),
    words(LOWER, 63),
    words(LOWER, 63),
)


def test_the_uri_is_the_one_of_the_protocol() -> None:
    assert TRAINER.uri() == GOOD


@given(identities)
@example(MemberIdentity("a" * 64, "rollout", "b" * 63, "c" * 63))
def test_every_name_survives_the_way_through_its_uri(identity: MemberIdentity) -> None:
    assert parse_uri(identity.uri()) == identity
    assert len(identity.uri()) <= MAX_URI_CHARACTERS


@pytest.mark.parametrize(
    "uri",
    [
        "",
        GOOD + "/",
        GOOD + "\n",
        GOOD + "?x=1",
        GOOD.replace("trainer-0", "*"),
        GOOD.replace("us-east", "*"),
        GOOD.replace("trainer-0", "Trainer-0"),
        GOOD.replace("trainer-0", "trainer%2d0"),
        GOOD.replace("trainer-0", "trainer-0/member/other"),
        GOOD.replace("role/trainer", "role/admin"),
        GOOD.replace("role/trainer", "role/Trainer"),
        GOOD.replace("syncgroup.dev", "syncgroup-dev"),
        GOOD.replace("syncgroup.dev", "syncgroup.dev:443"),
        GOOD.replace("syncgroup.dev", "SYNCGROUP.dev"),
        GOOD.replace("spiffe", "https"),
        GOOD.replace("0f-1", "x" * 65),
        GOOD.replace("trainer-0", "x" * 64),
        GOOD.replace("trainer-0", "train\u00e9r"),
        GOOD.replace("trainer-0", "\u0661"),
        GOOD.replace("/region/us-east", ""),
        GOOD + "x" * 10_000,
    ],
)
def test_whatever_is_not_the_grammar_is_a_bad_name(uri: str) -> None:
    with pytest.raises(BadNameError) as caught:
        parse_uri(uri)
    assert len(str(caught.value)) < 400


@given(st.text())
def test_no_text_breaks_the_parser(text: str) -> None:
    with pytest.raises(BadNameError):
        parse_uri(text)


@pytest.mark.parametrize(
    ("wanted", "kind"),
    [
        ({"group_uid": "other"}, WrongGroupError),
        ({"group_uid": "other", "roles": ("rollout",)}, WrongGroupError),
        ({"group_uid": "0f-1", "roles": ("rollout",)}, WrongRoleError),
        ({"group_uid": "0f-1", "member": "trainer-1"}, WrongMemberError),
        ({"group_uid": "0f-1", "region": "eu-west"}, WrongMemberError),
    ],
)
def test_another_name_than_expected_is_refused_group_first(wanted: dict[str, str], kind: type[IdentityError]) -> None:
    with pytest.raises(kind):
        expect(TRAINER, **wanted)


def test_the_expected_name_passes() -> None:
    expect(TRAINER, group_uid="0f-1", roles=("trainer",), member="trainer-0", region="us-east")


def test_a_name_cannot_be_changed_or_made_with_bad_parts() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        TRAINER.member = "x"  # type: ignore[misc]
    with pytest.raises(BadNameError, match="region"):
        dataclasses.replace(TRAINER, region="EU West")
