"""One region over streams, another through an object store, over real sidecars: every digest equals the trainer's."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sync_runtime import Publisher, Subscriber
from tests.support.azure import azure_server
from tests.support.following import follow
from tests.support.groups import TRAINER, Group, Member, wait_for
from tests.support.inside import InsideGroup
from tests.support.models import nudge, same_bits, small_model
from tests.support.s3 import s3_server

pytestmark = pytest.mark.timeout(180)

EU = Member("eu-0", "eu", ("trainer-0",), relay=True)
ASIA, LEAF = Member("asia-0", "asia", ("trainer-0",), relay=True), Member("asia-1", "asia", ("asia-0",))
FAR = Member("far-0", "far", ("trainer-0",))


class Store(NamedTuple):
    """Where a store is, and the folder with its credentials."""

    url: str
    credentials: Path


@contextmanager
def a_store(kind: str, folder: Path, **settings: Any) -> Iterator[Store]:
    """A folder, or a real server of S3 or of Azure's protocol; skips where there is none."""
    folder.mkdir()
    if kind == "folder":
        (folder / "secret").mkdir()
        yield Store(f"file://{folder}/kept", folder / "secret")
        return
    with azure_server(folder) if kind == "azure" else s3_server(folder, **settings) as running:
        yield Store(running.url, running.credentials)


@pytest.fixture(params=["folder", "s3", "azure"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with a_store(request.param, tmp_path / "store") as made:
        yield made


def through(store: Store, region: str, **more: Any) -> dict[str, Any]:
    return {"region": region, "transport": "ObjectStore", "objectStore": {"url": store.url, **more}}


def names_of(links: list[dict[str, Any]]) -> set[str]:
    return {str(link["peer"]) for link in links}


def test_a_region_behind_a_store_and_one_over_streams_have_the_trainers_bits(tmp_path: Path, store: Store) -> None:
    settings = {"regions": [through(store, "asia")], "storeSecret": str(store.credentials)}
    with InsideGroup(tmp_path, [TRAINER, EU, ASIA, LEAF], ringBytes=1 << 22, **settings) as group:
        group.start_all()
        trained = small_model()
        models = {name: small_model() for name in ("eu-0", "asia-0", "asia-1")}
        with Publisher(trained, socket=group.socket("trainer-0")) as publisher:
            for step in range(1, 4):
                nudge(trained, step)
                version = publisher.publish(step=step)
                for name, model in models.items():
                    with Subscriber(model, socket=group.socket(name)) as subscriber:
                        follow(subscriber, version.seq, 60.0)
                        assert subscriber.version is not None
                        assert subscriber.version.digest == version.digest
                        assert same_bits(model, trained), f"{name} has other bits"
            assert names_of(group.ask("trainer-0", "/v1/links")["links"]) == {"eu-0"}  # nobody of asia dialled it
            assert names_of(group.ask("asia-0", "/v1/links")["links"]) == {"asia-1"}
        parents = {name: _parent(group, name) for name in models}
        assert parents == {"eu-0": "trainer-0", "asia-0": "object-store", "asia-1": "asia-0"}
        told = {name: group.ask(name, "/v1/status")["report"].get("store") for name in ("trainer-0", *models)}
        assert told["eu-0"] is told["asia-1"] is None  # a region reads every byte from its store once
        assert (told["trainer-0"] or {})["seq"] == (told["asia-0"] or {})["seq"] == 3


def test_two_regions_have_two_stores_with_credentials_of_their_own(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    with (
        a_store("s3", tmp_path / "one") as one,
        a_store("s3", tmp_path / "other", access="others", secret="other-secret") as other,
    ):
        for server, prefix in ((one, "one."), (other, "far.keys.")):
            for path in server.credentials.iterdir():
                (secret / f"{prefix}{path.name}").write_bytes(path.read_bytes())
        regions = [
            through(one, "asia", secretRef={"name": "one"}),
            through(other, "far", secretRef={"name": "far.keys"}, prefix="mine"),
        ]
        settings = {"regions": regions, "storeSecret": str(secret)}
        with InsideGroup(tmp_path, [TRAINER, EU, ASIA, FAR], ringBytes=1 << 22, **settings) as group:
            group.start_all()
            trained = small_model()
            models = {name: small_model() for name in ("eu-0", "asia-0", "far-0")}
            with Publisher(trained, socket=group.socket("trainer-0")) as publisher:
                nudge(trained, 1)
                version = publisher.publish()
                for name, model in models.items():
                    with Subscriber(model, socket=group.socket(name)) as subscriber:
                        follow(subscriber, version.seq, 60.0)
                        assert same_bits(model, trained), f"{name} has other bits"
                wait_for(lambda: _store(group).get("seq") == 1, what="the trainer tells of both")
                (secret / "far.keys.AWS_SECRET_ACCESS_KEY").write_text("not that one")
                group.stop("far-0")
                group.stop("trainer-0")
                group.start("trainer-0", "far-0")
            told = wait_for(lambda: _store(group).get("trouble") and _store(group), 60.0, what="one store is ill")
            assert told["trouble"]["reason"] == "StoreDenied"
            assert told["address"] == f"{other.url}/mine"
            assert group.ask("trainer-0", "/metrics")["syncgroup_store_up"] == 0.0


def _store(group: Group) -> dict[str, Any]:
    return group.ask("trainer-0", "/v1/status")["report"].get("store") or {}


def test_a_member_that_is_made_the_relay_takes_over_the_store_while_it_runs(tmp_path: Path, store: Store) -> None:
    settings = {"regions": [through(store, "asia")], "storeSecret": str(store.credentials)}
    leaf = dataclasses.replace(LEAF, relay=True)  # it may be dialled later
    with InsideGroup(tmp_path, [TRAINER, ASIA, leaf], ringBytes=1 << 22, **settings) as group:
        group.start_all()
        trained, far = small_model(), small_model()
        with (
            Publisher(trained, socket=group.socket("trainer-0")) as publisher,
            Subscriber(far, socket=group.socket("asia-1")) as subscriber,
        ):
            nudge(trained, 1)
            follow(subscriber, publisher.publish().seq, 60.0)
            group.stop("asia-0")
            group.plan(2, dataclasses.replace(leaf, parents=("trainer-0",)))
            nudge(trained, 2)
            follow(subscriber, publisher.publish().seq, 60.0)
            assert same_bits(far, trained)
            assert _parent(group, "asia-1") == "object-store"
            assert group.ask("trainer-0", "/v1/links")["links"] == []
            group.start("asia-0")
            group.plan(3, leaf)  # and back: it dials, and follows nothing
            wait_for(lambda: _parent(group, "asia-1") == "asia-0", what="it dials")
            nudge(trained, 3)
            follow(subscriber, publisher.publish().seq, 60.0)
            assert same_bits(far, trained)
            assert group.ask("asia-1", "/v1/status")["report"].get("store") is None


def test_a_region_goes_over_to_a_store_while_the_group_runs_and_back(tmp_path: Path, store: Store) -> None:
    secret = {"storeSecret": str(store.credentials)}
    with InsideGroup(tmp_path, [TRAINER, EU, ASIA], ringBytes=1 << 22, **secret) as group:
        group.start_all()
        trained = small_model()
        models = {"eu-0": small_model(), "asia-0": small_model()}
        with Publisher(trained, socket=group.socket("trainer-0")) as publisher:
            for step, regions in enumerate(([], [through(store, "asia")], []), 1):
                group.plan(step + 1, regions=regions)
                parent = "object-store" if regions else "trainer-0"
                wait_for(lambda p=parent: _parent(group, "asia-0") == p, 30.0, what=f"{parent} is followed")
                nudge(trained, step)
                version = publisher.publish(step=step)
                for name, model in models.items():
                    with Subscriber(model, socket=group.socket(name)) as subscriber:
                        follow(subscriber, version.seq, 60.0)
                        assert same_bits(model, trained), f"{name} has other bits at step {step}"
                assert _parent(group, "eu-0") == "trainer-0"


def _parent(group: Group, name: str) -> str:
    return str(group.ask(name, "/v1/status")["report"].get("parent"))


def test_a_store_that_is_away_holds_up_neither_streams_nor_another_store(tmp_path: Path) -> None:
    away = Store("http://127.0.0.1:9/weights", tmp_path / "secret")  # nobody listens there
    away.credentials.mkdir()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        (away.credentials / f"away.{name}").write_text("x")
    with a_store("folder", tmp_path / "store") as well:
        ways = [through(well, "asia"), through(away, "far", secretRef={"name": "away"})]
        settings = {"regions": ways, "storeSecret": str(away.credentials)}
        with InsideGroup(tmp_path, [TRAINER, EU, ASIA, FAR], ringBytes=1 << 22, **settings) as group:
            group.start_all()
            trained = small_model()
            models = {"eu-0": small_model(), "asia-0": small_model()}
            with Publisher(trained, socket=group.socket("trainer-0")) as publisher:
                for step in (1, 2):
                    nudge(trained, step)
                    version = publisher.publish(step=step)
                    for name, model in models.items():
                        with Subscriber(model, socket=group.socket(name)) as subscriber:
                            follow(subscriber, version.seq, 60.0)
                            assert same_bits(model, trained), f"{name} has other bits"
            told = wait_for(lambda: _store(group).get("trouble") and _store(group), 90.0, what="it is told of")
            assert (told["trouble"]["reason"], told["address"]) == ("StoreUnavailable", f"{away.url}/default/demo")
