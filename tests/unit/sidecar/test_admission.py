"""Who may connect as a child, and whether it helps to come again."""

from __future__ import annotations

from pathlib import Path

import pytest

from sync_runtime.errors import RefusedError
from sync_runtime.identity.names import MemberIdentity
from sync_runtime.sidecar.admission import ChildPolicy, Standing
from sync_runtime.standalone import load_group, plan_of, settings_of
from sync_runtime.transport.messages import Hello
from tests.support.groups import TRAINER, Group, Member

RELAY = Member("eu-0", "eu", ("trainer-0",), relay=True)
LEAF = Member("eu-1", "eu", ("eu-0", "trainer-0"))


@pytest.mark.parametrize(("parent", "retry"), [("trainer-0", False), ("eu-0", True)])
def test_a_relay_that_has_not_heard_of_the_newest_term_may_be_dialled_again(
    tmp_path: Path, parent: str, retry: bool
) -> None:
    config = Group(tmp_path, [TRAINER, RELAY, LEAF]).config
    group = load_group(config)
    settings = settings_of(group, parent, config)
    standing = Standing(3, "d" * 32, plan_of(group, settings.region))
    policy = ChildPolicy(settings, lambda: standing, lambda hello: 2)
    identity = MemberIdentity(settings.group_uid, "rollout", "eu", "eu-1")
    hello = Hello(
        protocols=[1], kind="control", group=settings.group_uid, member="eu-1", cluster=settings.cluster, region="eu",
        role="rollout", term=4,
    )  # fmt: skip
    with pytest.raises(RefusedError, match="replaced by 4") as refused:
        policy.admit(identity, hello)
    assert (refused.value.reason, refused.value.retry) == ("OldTerm", retry)
    assert policy.admit(identity, hello.model_copy(update={"term": 3})).term == 3
