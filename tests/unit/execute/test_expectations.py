"""A pass waits until the caches show what the last one did, but not for ever."""

from __future__ import annotations

from dataclasses import replace

import pytest

from syncgroup_operator.execute.act import Done
from syncgroup_operator.execute.expectations import PATIENCE_S, Expectations
from syncgroup_operator.planning.observation import ObjectKey, Observation
from tests.unit.planning.world import World, fill, group

LOCAL = "local"


@pytest.fixture
def seen() -> Observation:
    world = World(group({"name": "near", "region": "us-east", "replicas": 1}))
    fill(world)
    return world.observe()


def done(seen: Observation, uid: str | None = None, *, deleted: bool = False) -> tuple[Done, ...]:
    pod = seen.clusters[LOCAL].pods[0]
    return (Done(LOCAL, ObjectKey("Pod", pod.namespace, pod.name), uid or pod.uid, deleted=deleted),)


def test_what_is_seen_already_is_not_waited_for(seen: Observation) -> None:
    expected = Expectations()
    expected.expect(seen.key, done(seen), seen.now_s)
    assert expected.met(seen.key, seen)


def test_a_pod_that_was_made_and_one_that_was_removed_are_waited_for(seen: Observation) -> None:
    for found in (done(seen, "another-uid"), done(seen, deleted=True)):
        expected = Expectations()
        expected.expect(seen.key, found, seen.now_s)
        assert not expected.met(seen.key, seen)
        assert expected.pending(seen.key)


def test_the_wait_has_an_end(seen: Observation) -> None:
    expected = Expectations()
    expected.expect(seen.key, done(seen, "another-uid"), seen.now_s)
    assert not expected.met(seen.key, replace(seen, now_s=seen.now_s + PATIENCE_S - 0.1))
    assert expected.met(seen.key, replace(seen, now_s=seen.now_s + PATIENCE_S))


def test_a_cluster_that_is_away_is_not_waited_for(seen: Observation) -> None:
    expected = Expectations()
    expected.expect(seen.key, done(seen, "another-uid"), seen.now_s)
    away = {LOCAL: replace(seen.clusters[LOCAL], connected_s=None)}
    assert expected.met(seen.key, replace(seen, clusters=away))
