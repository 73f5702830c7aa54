"""group.toml: what it becomes, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from sync_runtime.contract import names
from sync_runtime.contract.plan import Plan
from sync_runtime.errors import SettingsError
from sync_runtime.settings import Address, from_environment, parse_address
from sync_runtime.standalone import load_group, plan_of, settings_of

GROUP = """
group = "demo"

[[members]]
name = "trainer-0"
role = "Trainer"
region = "us"
listen = "127.0.0.1:7443"

[[members]]
name = "eu-0"
region = "eu"
relay = true
listen = "127.0.0.1:7444"
parents = ["trainer-0"]

[[members]]
name = "eu-1"
region = "eu"
parents = ["eu-0", "trainer-0"]
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "group.toml"
    path.write_text(text)
    return path


def test_a_member_finds_itself_and_its_things_beside_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, GROUP)
    settings = settings_of(load_group(path), "eu-1", path)
    assert (settings.role, settings.region, settings.cluster) == ("rollout", "eu", names.LOCAL_CLUSTER)
    assert settings.identity_dir == tmp_path / "certs/eu-1"
    assert settings.spool_dir == tmp_path / "state/eu-1/spool"
    assert settings.served_folder is None


def test_a_served_folder_and_its_base_lie_beside_the_file(tmp_path: Path) -> None:
    served = 'name = "eu-1"\nservedFolder = "served"\nservedBase = "base"\nservedGraceSeconds = 3'
    path = write(tmp_path, GROUP.replace('name = "eu-1"', served))
    settings = settings_of(load_group(path), "eu-1", path)
    assert (settings.served_folder, settings.served_base) == (tmp_path / "served", tmp_path / "base")
    assert settings.served_grace_s == 3


def test_the_plan_is_the_one_an_operator_would_write(tmp_path: Path) -> None:
    group = load_group(write(tmp_path, GROUP))
    plan = plan_of(group, "eu")
    assert Plan.from_json(plan.to_json()) == plan
    assert plan.trainer is not None
    assert (plan.trainer.host, plan.trainer.port) == ("127.0.0.1", 7443)
    assert [member.parents for member in plan.members] == [["trainer-0"], ["eu-0", "trainer-0"]]
    assert {(link.from_cluster, link.from_region) for link in plan.links} == {("local", "us"), ("local", "eu")}


def test_all_members_of_a_group_agree_on_its_uid_without_a_server(tmp_path: Path) -> None:
    first = load_group(write(tmp_path, GROUP))
    other = load_group(write(tmp_path, GROUP.replace("eu-1", "eu-7")))
    assert first.group_uid == other.group_uid
    assert first.group_uid != load_group(write(tmp_path, GROUP.replace("demo", "demo2"))).group_uid


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (('role = "Trainer"', 'role = "Rollout"\nparents = ["eu-0"]'), "exactly one member is the trainer"),
        (('name = "eu-1"', 'name = "eu-0"'), "two members have one name"),
        (('parents = ["eu-0", "trainer-0"]', 'parents = ["eu-9"]'), "does not exist"),
        (('parents = ["trainer-0"]', ""), "needs `parents`"),
        (('listen = "127.0.0.1:7443"', ""), "need `listen`"),
        (('group = "demo"', 'group = "demo"\ncolour = "red"'), "colour"),
        (('group = "demo"', "group = demo"), "is not TOML"),
        (("127.0.0.1:7444", "127.0.0.1:99999"), r"members\[1\].listen: must be an address"),
        (("127.0.0.1:7443", "127.0.0.1:0"), r"members\[0\].listen: must be an address that others can dial"),
        (("127.0.0.1:7443", "my host:7443"), r"members\[0\].listen: must be an address"),
        (('name = "eu-1"', 'name = "eu-1"\ncontrol = "7480"'), r"members\[2\].control: must be an address"),
        (('name = "eu-1"', 'name = "eu-1"\nservedFolder = "served"'), r"members\[2\].servedFolder: .* `servedBase`"),
    ],
)
def test_a_file_that_cannot_work_is_refused_in_a_sentence(
    tmp_path: Path, change: tuple[str, str], message: str
) -> None:
    with pytest.raises(SettingsError, match=message):
        load_group(write(tmp_path, GROUP.replace(*change)))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"nothing\.toml cannot be read"):
        load_group(tmp_path / "nothing.toml")


def test_an_unknown_member_is_answered_with_those_that_exist(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="trainer-0, eu-0, eu-1"):
        load_group(write(tmp_path, GROUP)).member("us-3")


@pytest.mark.parametrize(
    ("text", "address"), [("127.0.0.1:0", Address("127.0.0.1", 0)), ("[::1]:7443", Address("::1", 7443))]
)
def test_addresses_are_read(text: str, address: Address) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["", "7443", ":7443", "host:", "host:x", "host:70000", "host:-1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="not an address"):
        parse_address(text)


def test_a_missing_variable_in_a_pod_is_named() -> None:
    with pytest.raises(SettingsError, match="SYNCGROUP_GROUP is not set"):
        from_environment({})


STORE = '{ url = "s3://weights", secretRef = { name = "eu" } }'
WAYS = f'regions = [{{ region = "eu", transport = "ObjectStore", objectStore = {STORE} }}]\n'


def test_a_region_behind_a_store_has_parents_in_the_region_only_and_the_trainer_feeds_it(tmp_path: Path) -> None:
    group = load_group(write(tmp_path, WAYS + GROUP))
    eu, us = plan_of(group, "eu"), plan_of(group, "us")
    assert (eu.transport, us.transport) == ("ObjectStore", "Streams")
    assert [member.parents for member in eu.members] == [[], ["eu-0"]]
    assert eu.store_keys == "eu."
    assert [(fed.object_store.url, fed.keys) for fed in us.feeds or ()] == [("s3://weights", "eu.")]
    assert eu.feeds is None
    assert us.store_keys is None
    assert us.anchor_every > 0
    assert Plan.from_json(us.to_json()) == us


def test_a_store_for_all_but_one_region(tmp_path: Path) -> None:
    text = 'objectStore = { url = "s3://weights" }\nregions = [{ region = "us", transport = "Streams" }]\n' + GROUP
    group = load_group(write(tmp_path, text))
    eu, us = plan_of(group, "eu"), plan_of(group, "us")
    assert (eu.transport, us.transport) == ("ObjectStore", "Streams")
    assert [fed.keys for fed in us.feeds or ()] == [None] == [eu.store_keys]


@pytest.mark.parametrize(
    ("regions", "words"),
    [
        ('[{ region = "eu", transport = "ObjectStore" }]', "needs objectStore"),
        ('[{ region = "asia", transport = "Streams" }]', "no member is in"),
        ('[{ region = "eu", transport = "Streams" }, { region = "eu", transport = "Streams" }]', "or twice"),
        (
            '[{ region = "eu", transport = "Streams", objectStore = { url = "s3://w" } }]',
            "with transport ObjectStore only",
        ),
    ],
)
def test_ways_that_cannot_be_are_refused(tmp_path: Path, regions: str, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        load_group(write(tmp_path, f"regions = {regions}\n{GROUP}"))
