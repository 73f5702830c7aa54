"""The object store in conditions and status: what members say of it decides, and what is not proved is not Ready."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sync_runtime.contract.names import store_secret_name
from sync_runtime.contract.status import SyncGroupStatus
from syncgroup_operator import reasons
from syncgroup_operator.planning.decide import decide
from syncgroup_operator.planning.observation import ChildView, ObjectKey, Slot
from syncgroup_operator.planning.state import GroupState
from tests.unit.planning.test_status import conditions, shown, status
from tests.unit.planning.world import World, fill, group

ROLLOUTS = ({"name": "eu", "replicas": 2}, {"name": "asia", "cluster": "far", "region": "asia", "replicas": 1})
SYNC = {"transport": "ObjectStore", "objectStore": {"url": "s3://weights", "secretRef": {"name": "keys"}}}
TRAINER, EU, ASIA = Slot("trainer", 0), Slot("eu", 0), Slot("asia", 0)
ADDRESS = "s3://weights/ml/grpo"
DENIED = {"reason": "StoreDenied", "message": "the store does not let us at latest"}


def running(sync: dict[str, Any] = SYNC) -> World:
    world = World(group(*ROLLOUTS, sync=sync))
    fill(world)
    return world


def told(world: World, slot: Slot, **store: Any) -> None:
    world.reports[slot] = {**world.reports.get(slot, {}), "store": store}


def region(found: SyncGroupStatus, name: str) -> Any:
    return next(one for one in found.regions if one.region == name)


def test_nothing_is_ready_before_the_trainer_has_opened_the_store() -> None:
    world = running()
    found = status(world)
    assert shown(found, "Ready") == ("False", reasons.STORE_UNPROVED)
    assert shown(found, "LinksHealthy") == ("Unknown", reasons.STORE_UNPROVED)
    assert shown(found, "Reconciling") == ("True", reasons.STORE_UNPROVED)
    assert ADDRESS in conditions(found)["Ready"].message
    told(world, TRAINER, objects=0)
    assert shown(status(world), "Ready") == ("True", reasons.ALL_READY)


def test_a_group_over_streams_is_asked_for_no_store() -> None:
    world = running(sync={})
    found = status(world)
    assert shown(found, "Ready")[0] == "True"
    assert found.store is None


@pytest.mark.parametrize("slot", [TRAINER, EU, ASIA])
def test_what_any_member_says_is_wrong_with_the_store_is_shown_with_its_words(slot: Slot) -> None:
    world = running()
    told(world, TRAINER, objects=3, seq=3)
    told(world, slot, trouble=DENIED)
    found = status(world)
    for kind in ("Ready", "LinksHealthy"):
        assert shown(found, kind) == ("False", reasons.STORE_DENIED)
        assert ADDRESS in conditions(found)[kind].message
        assert DENIED["message"] in conditions(found)[kind].message
    assert shown(found, "Stalled")[0] == "False"
    assert found.store is not None
    assert (found.store.reason, found.store.address) == ("StoreDenied", ADDRESS)
    told(world, slot, objects=3, seq=3)
    mended = status(world)
    assert shown(mended, "Ready")[0] == shown(mended, "LinksHealthy")[0] == "True"
    assert mended.store is not None
    assert mended.store.reason is mended.store.message is None


def test_the_trainers_trouble_is_told_before_a_followers() -> None:
    world = running()
    told(world, EU, trouble={"reason": "StoreUnavailable", "message": "away"})
    told(world, TRAINER, trouble={"reason": "StoreUnfit", "message": "puts over what is there"})
    assert shown(status(world), "Ready") == ("False", reasons.STORE_UNFIT)


def test_a_word_that_is_none_of_ours_still_makes_a_condition() -> None:
    world = running()
    told(world, TRAINER, trouble={"reason": "OldTerm", "message": "another trainer"})
    assert shown(status(world), "LinksHealthy") == ("False", "OldTerm")


def test_the_status_shows_the_store_as_the_link_into_every_region() -> None:
    world = running()
    told(world, TRAINER, objects=7, seq=7, rateBitsPerSecond=10**9)
    told(world, EU, objects=7, seq=7, rateBitsPerSecond=5 * 10**8)
    told(world, ASIA, objects=2, seq=5, trouble={"reason": "StoreUnavailable", "message": "it is away"})
    found = status(world)
    assert found.store is not None
    assert (found.store.version, found.store.rate_bits_per_second) == (7, 10**9)
    near, far = region(found, "eu").link, region(found, "asia").link
    assert near.store == far.store == ADDRESS
    assert (near.rate_bits_per_second, near.from_region, near.message) == (5 * 10**8, "us", None)
    assert far.message == "it is away"


def test_rates_that_are_nearly_the_same_are_not_written_again() -> None:
    world = running()
    told(world, TRAINER, objects=1, rateBitsPerSecond=1000)
    told(world, EU, objects=1, rateBitsPerSecond=1000)
    first = status(world)
    told(world, TRAINER, objects=2, rateBitsPerSecond=1050)
    told(world, EU, objects=2, rateBitsPerSecond=1050)
    second = status(world)
    assert (second.store, region(second, "eu").link) == (first.store, region(first, "eu").link)
    told(world, EU, objects=3, rateBitsPerSecond=3000)
    assert region(status(world), "eu").link.rate_bits_per_second == 3000


def test_a_group_that_goes_back_to_streams_forgets_the_store() -> None:
    world = running()
    told(world, TRAINER, objects=1)
    assert region(status(world), "eu").link.store == ADDRESS
    world.change(sync={})
    found = status(world)
    assert found.store is None
    assert region(found, "eu").link is None


def test_clusters_that_may_hold_a_copy_are_remembered_until_they_are_seen_without_it() -> None:
    world = running()
    assert GroupState.from_json(world.state).store_clusters == ["far", "local"]
    key = ObjectKey("Secret", "ml", store_secret_name(world.group.key))
    body = json.dumps({"kind": "Secret", "metadata": {"name": key.name, "namespace": "ml"}}).encode()
    world.children.setdefault("far", {})[key] = ChildView(key, "uid-copy", "1", body)
    world.change(sync={})
    world.step()
    assert GroupState.from_json(world.state).store_clusters == ["far"]
    world.cut("far")
    del world.children["far"][key]
    world.step()
    assert GroupState.from_json(world.state).store_clusters == ["far"]
    world.mend("far")
    world.step()
    assert GroupState.from_json(world.state).store_clusters == []


def test_a_group_that_never_had_a_secret_is_looked_at_nowhere() -> None:
    world = running(sync={"transport": "ObjectStore", "objectStore": {"url": "s3://weights"}})
    assert decide(world.observe(), GroupState.from_json(world.state)).state.store_clusters == []
