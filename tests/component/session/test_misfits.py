"""An engine whose tensors are not the trainer's hears it, wherever it asks, and so does whoever reads its report."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from sync_runtime import Publisher, Subscriber
from sync_runtime.errors import LayoutError, SyncError
from tests.support.following import follow, heard_of
from tests.support.groups import TRAINER, Member, wait_for
from tests.support.inside import InsideGroup
from tests.support.models import nudge, same_bits, small_model

pytestmark = pytest.mark.timeout(60)
LEAF = Member("eu-0", "eu", ("trainer-0",))


@pytest.fixture
def group(tmp_path: Path) -> Iterator[InsideGroup]:
    with InsideGroup(tmp_path, [TRAINER, LEAF], ringBytes=1 << 20) as made:
        made.start_all()
        yield made


def another_model() -> torch.nn.Module:
    model = small_model()
    model[3] = torch.nn.Linear(300, 17).bfloat16()  # type: ignore[operator]
    return model


def trouble(group: InsideGroup) -> Any:
    return group.ask("eu-0", "/v1/status")["report"].get("trouble")


def published(group: InsideGroup, model: torch.nn.Module) -> Publisher:
    publisher = Publisher(model, socket=group.socket("trainer-0"))
    nudge(model, 1)
    publisher.publish(step=1)
    return publisher


def test_an_engine_that_is_open_already_hears_it_in_every_call(group: InsideGroup) -> None:
    live = another_model()
    before = {name: one.clone() for name, one in live.state_dict().items()}
    with Subscriber(live, socket=group.socket("eu-0")) as subscriber:
        assert subscriber.activate() is None  # nothing is known yet
        publisher = published(group, small_model())
        with pytest.raises(LayoutError, match=r"'3.bias' is BF16\[16\] at the trainer and BF16\[17\] in"):
            subscriber.wait(timeout=20.0)
        for call in (
            subscriber.activate,
            lambda: subscriber.wait(timeout=0.0),
            lambda: subscriber.wait(timeout=0.0, seq=1),
        ):
            with pytest.raises(LayoutError, match=r"'3.bias'"):
                call()
    assert all(torch.equal(one, before[name]) for name, one in live.state_dict().items())
    found = trouble(group)
    assert found["reason"] == "Layout"
    assert "'3.bias'" in found["message"]
    publisher.close(0.0)


def test_an_engine_that_opens_later_is_refused_at_once_and_one_that_fits_is_let_in(group: InsideGroup) -> None:
    trained = small_model()
    publisher = published(group, trained)
    with Subscriber(small_model(), socket=group.socket("eu-0")) as subscriber:
        follow(subscriber, 1)
    with pytest.raises(LayoutError, match=r"'3.bias'"):
        Subscriber(another_model(), socket=group.socket("eu-0"), timeout=20.0)
    assert trouble(group)["reason"] == "Layout"
    live = small_model()
    with Subscriber(live, socket=group.socket("eu-0")) as subscriber:
        follow(subscriber, 1)
        assert same_bits(live, trained)
        assert trouble(group) is None
    publisher.close(0.0)


def test_an_engine_that_waits_is_let_in_when_a_trainer_comes_that_it_fits(group: InsideGroup) -> None:
    live, trained = another_model(), another_model()
    with Subscriber(live, socket=group.socket("eu-0")) as subscriber:
        first = published(group, small_model())
        with pytest.raises(LayoutError):
            subscriber.wait(timeout=20.0)
        first.close(0.0)
        group.stop("trainer-0")
        group.start("trainer-0")
        second = published(group, trained)
        heard_of(group, "eu-0", 1)

        def there() -> bool:
            try:
                subscriber.activate()
            except SyncError:  # it dials again every few seconds
                return False
            return subscriber.version == second.version

        wait_for(there, 30, what="the second trainer's version")
        assert same_bits(live, trained)
        second.close(0.0)


def test_what_was_refused_is_not_fetched_again_and_again(group: InsideGroup) -> None:
    """Whole weights for an engine that cannot use them would cost every version the whole model."""
    trained = small_model()
    publisher = published(group, trained)
    with Subscriber(another_model(), socket=group.socket("eu-0")) as subscriber:
        with pytest.raises(LayoutError):
            subscriber.wait(timeout=20.0)
        sidecar = group.sidecars["eu-0"]
        before = {str(one.key) for one in group.call(lambda: list(sidecar.spool.objects()))}
        for step in (2, 3, 4):
            nudge(trained, step)
            heard_of(group, "eu-0", publisher.publish(step=step).seq)
            with pytest.raises(LayoutError):
                subscriber.wait(timeout=0.5)
        after = {str(one.key) for one in group.call(lambda: list(sidecar.spool.objects()))}
    assert [key for key in after - before if "anchor" in key] == []
    publisher.close(0.0)
