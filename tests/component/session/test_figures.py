"""What Prometheus would scrape from real sidecars: the whole list, in its own parser, with the values that are true."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from prometheus_client.parser import text_string_to_metric_families

from sync_runtime import Publisher, Subscriber
from sync_runtime.contract.figures import runtime, series_of
from tests.support.following import follow
from tests.support.groups import TRAINER, Group, Member, wait_for
from tests.support.models import nudge, small_model

pytestmark = pytest.mark.timeout(120)
RELAY = Member("eu-0", "eu", ("trainer-0",), relay=True)
OF_RANKS_AND_WORK = {"syncgroup_starting", "syncgroup_gpu_worker_up", "syncgroup_gpu_worker_starts_total"}
OF_OTHER_GROUPS = ("syncgroup_work_", "syncgroup_store_")
"""Those with work leases or an object store; their own tests look at them."""
KNOWN = series_of(runtime.FIGURES)
Scraped = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    with Group(tmp_path, [TRAINER, RELAY], ringBytes=1 << 20) as made:
        yield made


def scraped(group: Group, name: str) -> Scraped:
    """All samples; each must be of the list, with its labels and kind."""
    with urllib.request.urlopen(f"http://127.0.0.1:{group.controls[name]}/metrics", timeout=5) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        text = answer.read().decode()
    found: Scraped = {}
    kinds = {figure.family: figure.kind for figure in runtime.FIGURES}
    for family in text_string_to_metric_families(text):
        assert family.type == kinds[family.name.removesuffix("_total")], family.name
        for sample in family.samples:
            assert set(sample.labels) == set(KNOWN[sample.name]), sample.name
            found[sample.name, tuple(sorted(sample.labels.items()))] = sample.value
    return found


def value(found: Scraped, name: str, **labels: str) -> float:
    return found[name, tuple(sorted(labels.items()))]


def test_every_figure_of_weights_and_links_is_there_with_its_true_value(group: Group) -> None:
    group.start_all()
    trained, member = small_model(), small_model()
    with Publisher(trained, socket=group.socket("trainer-0")) as publisher:
        with Subscriber(member, socket=group.socket("eu-0")) as subscriber:
            for step in range(1, 4):
                nudge(trained, step)
                seq = publisher.publish(step=step).seq
                follow(subscriber, seq)
            assert subscriber.scrub()
            with torch.no_grad():
                next(member.parameters()).view(-1)[3] += 1
            assert not subscriber.scrub()
            wait_for(lambda: group.ask("trainer-0", "/v1/links")["reports"][0].get("rttMicros"), what="a measured link")
            trainer, rollout = scraped(group, "trainer-0"), scraped(group, "eu-0")
            _check_trainer(group, trainer, trained, seq)
    _check_rollout(rollout, seq)
    shown = {name for name, _ in (*trainer, *rollout)}
    missing = {name for name in KNOWN if name not in shown and not name.startswith(OF_OTHER_GROUPS)}
    assert missing <= OF_RANKS_AND_WORK | {"syncgroup_refusals_total"}


def _check_trainer(group: Group, found: Scraped, trained: torch.nn.Module, seq: int) -> None:
    assert value(found, "syncgroup_head_seq") == value(found, "syncgroup_version_seq") == seq
    objects = group.ask("trainer-0", "/v1/versions")["objects"]
    (size_bytes,) = [one["bytes"] for one in objects if one["key"].endswith(f"/{seq - 1}-{seq}.fast")]
    assert value(found, "syncgroup_payload_bytes", codec="fast") == size_bytes
    changed = value(found, "syncgroup_payload_changed_elements")
    assert value(found, "syncgroup_payload_bits_per_changed_element", codec="fast") == pytest.approx(
        8 * size_bytes / changed
    )
    elements = {name: tensor.numel() for name, tensor in trained.state_dict().items()}
    assert 0 < value(found, "syncgroup_payload_density_ratio") <= 1
    assert changed <= sum(elements.values())
    assert value(found, "syncgroup_weights_bytes") <= sum(
        tensor.numel() * tensor.element_size() for tensor in trained.state_dict().values()
    )
    link = {"peer": "eu-0", "to_cluster": "local", "to_region": "eu"}
    assert value(found, "syncgroup_link_sent_bytes_total", **link) >= size_bytes
    assert value(found, "syncgroup_link_rtt_seconds", **link) < 1
    assert value(found, "syncgroup_link_streams", **link) >= 1
    assert value(found, "syncgroup_link_bucket_bytes", **link) >= 1 << 10
    assert 0 <= value(found, "syncgroup_link_utilisation_ratio", **link) <= 1
    assert value(found, "syncgroup_link_rate_bits_per_second", **link) > 0
    assert value(found, "syncgroup_stage_seconds_count", stage="encode") == seq


def _check_rollout(found: Scraped, seq: int) -> None:
    assert value(found, "syncgroup_version_seq") == seq
    assert value(found, "syncgroup_lag_versions") == 0
    assert value(found, "syncgroup_scrubs_total", result="Failed") == 1
    assert value(found, "syncgroup_scrubs_total", result="Passed") >= 1
    assert value(found, "syncgroup_pause_seconds_count") == seq
    assert 1 <= value(found, "syncgroup_sync_seconds_count") <= seq
    assert value(found, "syncgroup_lease_renewals_total") >= 1
    assert value(found, "syncgroup_lease_failures") == 0
    assert value(found, "syncgroup_lease_age_seconds") < 60
    assert value(found, "syncgroup_certificate_expiry_timestamp_seconds") > 1.7e9
