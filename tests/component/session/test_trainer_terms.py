"""Two trainers of one group: the older one is fenced off, a conflict is counted, and bits are the newer one's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sync_runtime import Publisher, Subscriber
from sync_runtime.errors import OldTermError
from sync_runtime.sidecar.brain import Sidecar
from sync_runtime.standalone import load_group, settings_of
from tests.support.following import activated, follow
from tests.support.groups import TRAINER, Member, free_port, wait_for
from tests.support.inside import InsideGroup
from tests.support.models import nudge, same_bits, small_model

pytestmark = pytest.mark.timeout(120)

LEAF = Member("eu-0", "eu", ("trainer-0",))


@pytest.fixture
def group(tmp_path: Path) -> Iterator[InsideGroup]:
    with InsideGroup(tmp_path, [TRAINER, LEAF], ringBytes=1 << 20) as made:
        made.start_all()
        yield made


def start_rival(group: InsideGroup, term: int) -> str:
    """A second sidecar with the trainer's certificates and a spool of its own; returns its library's socket."""
    text = group.config.read_text().replace(f":{group.ports['trainer-0']}", f":{free_port()}")
    text = text.replace('name = "trainer-0"', f'name = "trainer-0"\nstate = "state/rival-{term}"')
    config = group.folder / f"rival-{term}.toml"
    config.write_text(f"term = {term}\n{text}")

    async def started() -> Sidecar:
        sidecar = Sidecar(settings_of(load_group(config), "trainer-0", config), {})
        await sidecar.start()
        return sidecar

    group.sidecars[f"rival-{term}"] = group.run(started())
    return str(group.folder / f"state/rival-{term}/sidecar.sock")


def point_members_at(group: InsideGroup, name: str) -> None:
    """The members' plan now names this trainer's address."""
    listener = group.sidecars[name].listener
    assert listener is not None
    old = group.config.read_text()
    group.config.write_text(old.replace(f":{group.ports['trainer-0']}", f":{listener.port}"))
    group.ports["trainer-0"] = listener.port


def test_a_rival_with_the_same_term_is_refused_and_counted(group: InsideGroup) -> None:
    trained, other, member = small_model(), small_model(seed=3), small_model()
    with Publisher(trained, socket=group.socket("trainer-0")) as publisher:
        with Subscriber(member, socket=group.socket("eu-0")) as subscriber:
            nudge(trained, 0)
            follow(subscriber, publisher.publish().seq)
            held = subscriber.version
            rival = start_rival(group, 1)
            with Publisher(other, socket=rival) as usurper:
                usurper.publish()
                point_members_at(group, "rival-1")
                wait_for(lambda: group.ask("eu-0", "/v1/refusals").get("TermConflict"), what="a counted conflict")
                subscriber.activate()
                assert subscriber.version == held
                assert same_bits(member, trained)


def test_a_newer_term_takes_over_and_the_old_trainer_is_fenced_off(group: InsideGroup) -> None:
    old, new, member = small_model(), small_model(seed=3), small_model()
    old_port = group.ports["trainer-0"]
    with Publisher(old, socket=group.socket("trainer-0")) as publisher:
        with Subscriber(member, socket=group.socket("eu-0")) as subscriber:
            nudge(old, 0)
            follow(subscriber, publisher.publish().seq)
            with Publisher(new, socket=start_rival(group, 7)) as successor:
                nudge(new, 0)
                version = successor.publish()
                point_members_at(group, "rival-7")
                wait_for(lambda: activated(subscriber) == version, 30, what="the successor's version")
                assert same_bits(member, new)
                nudge(old, 1)
                publisher.publish()  # into its own spool; nobody follows
                group.ports["trainer-0"], text = old_port, group.config.read_text()
                listener = group.sidecars["rival-7"].listener
                assert listener is not None
                group.config.write_text(text.replace(f":{listener.port}", f":{old_port}"))
                wait_for(lambda: group.ask("trainer-0", "/v1/refusals").get("OldTerm"), what="a counted refusal")
                subscriber.activate()
                assert subscriber.version == version
                assert same_bits(member, new)


def test_a_trainer_that_was_replaced_says_so_and_publishes_nothing(group: InsideGroup) -> None:
    model = small_model()
    with Publisher(model, socket=group.socket("trainer-0")) as publisher:
        nudge(model, 0)
        publisher.publish()
        before = group.ask("trainer-0", "/v1/versions")
        group.config.write_text(f"term = 9\n{group.config.read_text()}")
        wait_for(lambda: group.ask("trainer-0", "/v1/ready"), what="the plan's term")
        nudge(model, 1)
        with pytest.raises(OldTermError, match="term 9"):
            publisher.publish()
        assert group.ask("trainer-0", "/v1/versions") == before
    group.stop("trainer-0")
    group.start("trainer-0")  # under the new term it may lead again
    with Publisher(model, socket=group.socket("trainer-0")) as publisher:
        publisher.publish()
        assert group.ask("trainer-0", "/v1/status")["report"]["term"] == 9


def test_a_member_that_restarts_does_not_let_a_replaced_trainer_win(group: InsideGroup) -> None:
    old, new, member = small_model(), small_model(seed=3), small_model()
    old_port = group.ports["trainer-0"]
    with Publisher(old, socket=group.socket("trainer-0")) as publisher:
        with Subscriber(member, socket=group.socket("eu-0")) as subscriber:
            nudge(old, 0)
            follow(subscriber, publisher.publish().seq)
            with Publisher(new, socket=start_rival(group, 7)) as successor:
                nudge(new, 0)
                version = successor.publish()
                point_members_at(group, "rival-7")
                wait_for(lambda: activated(subscriber) == version, 30, what="the successor's version")
                group.stop("eu-0")
                nudge(old, 1)
                publisher.publish()
                successor_port, group.ports["trainer-0"] = group.ports["trainer-0"], old_port
                group.config.write_text(group.config.read_text().replace(f":{successor_port}", f":{old_port}"))
                group.start("eu-0")  # its plan names the old trainer again, and no term: only its spool knows better
                wait_for(lambda: group.ask("trainer-0", "/v1/refusals").get("OldTerm"), what="a counted refusal")
                assert group.ask("eu-0", "/v1/status")["report"]["term"] == 7
                wait_for(lambda: group.ask("eu-0", "/v1/status")["report"]["state"] != "Starting", what="its engine")
                subscriber.activate()
                assert same_bits(member, new)
                group.config.write_text(group.config.read_text().replace(f":{old_port}", f":{successor_port}"))
                nudge(new, 1)
                last = successor.publish()
                wait_for(lambda: activated(subscriber) == last, 30, what="the successor's next version")
                assert same_bits(member, new)
