"""Which results count, where groups are, and what a trainer may submit."""

from __future__ import annotations

import pytest

from sync_runtime.errors import WorkError, WorkFullError
from sync_runtime.work import ledger as ledger_module
from sync_runtime.work import model
from sync_runtime.work.model import Policy, Prompts
from tests.unit.work.ledgers import OTHER_LINEAGE, Kept, version


def test_a_result_counts_once_and_again_has_no_effect() -> None:
    kept = Kept()
    kept.submit("a")
    lease = kept.lease("w", version(1))
    assert kept.offer(lease).reason == model.COUNTED
    assert kept.offer(lease, payload=b"other").reason == model.ALREADY_COUNTED
    assert kept.ledger.done == 1
    done = kept.ledger.deliverable()
    assert done is not None
    assert done.payload.startswith(b"result of 0")
    assert kept.consume() == "a"
    assert kept.offer(lease).reason == model.ALREADY_COUNTED
    assert kept.ledger.pending == 0


@pytest.mark.parametrize(
    ("changed", "reason", "is_back"),
    [
        ({"worker": "thief"}, model.WRONG_WORKER, False),
        ({"version": version(2)}, model.WRONG_VERSION, True),
        ({"version": model.WorkVersion(version(1).lineage, 1, "f" * 32)}, model.WRONG_VERSION, True),
        ({"scrubbed": False}, model.NOT_SCRUBBED, True),
        ({"lease": "3-1-77"}, model.NOT_LIVE, False),
    ],
)
def test_a_result_that_is_not_what_the_lease_names_does_not_count(
    changed: dict[str, object], reason: str, is_back: bool
) -> None:
    kept = Kept()
    kept.submit("a")
    lease = kept.lease("w", version(1))
    assert kept.offer(lease, **changed).reason == reason
    assert kept.ledger.done == 0
    assert kept.ledger.queued == int(is_back)


def test_the_step_is_a_label_and_proves_nothing() -> None:
    kept = Kept()
    kept.submit("a")
    lease = kept.lease("w", version(1))
    named = model.WorkVersion(version(1).lineage, 1, version(1).digest, step=None)
    assert kept.offer(lease, version=named).reason == model.COUNTED


def test_a_result_waits_until_the_trainer_has_opened() -> None:
    kept = Kept()
    kept.submit("a")
    lease = kept.lease("w", version(1))
    offer = model.Offer(lease.id, "w", version(1), True, 1, b"")
    verdict = kept.ledger.judge(offer, None)
    assert (verdict.reason, verdict.retry, verdict.changes) == (model.NOT_READY, True, ())


def test_expiry_returns_the_work_and_a_late_result_hears_why() -> None:
    kept = Kept(Policy(lease_s=10))
    kept.submit("a", "b")
    late = kept.lease("slow", version(1), now_s=0.0)
    kept.lease("w", version(1), now_s=5.0)
    assert kept.do(kept.ledger.expired(9.9)) == 0
    assert kept.do(kept.ledger.expired(10.0)) == 1
    verdict = kept.offer(late)
    assert verdict.reason == model.NOT_LIVE
    assert "expired" in verdict.message
    again = kept.lease("w", version(1))
    assert again.number == late.number  # returned work first
    assert kept.offer(again).counted


def test_a_new_lineage_ends_leases_of_the_old_one_and_is_no_attempt() -> None:
    kept = Kept(Policy(max_attempts=1))
    kept.submit("a")
    lease = kept.lease("w", version(1))
    kept.do(kept.ledger.foreign(OTHER_LINEAGE))
    assert kept.ledger.queued == 1
    assert "another state" in kept.offer(lease, version(1, OTHER_LINEAGE)).message
    again = kept.lease("w", version(1, OTHER_LINEAGE))
    assert kept.offer(again).counted


def test_a_result_of_a_dead_lineage_does_not_count_even_if_nobody_looked_yet() -> None:
    kept = Kept()
    kept.submit("a")
    lease = kept.lease("w", version(1))
    assert kept.offer(lease, version(5, OTHER_LINEAGE)).reason == model.NEW_LINEAGE
    assert (kept.ledger.queued, kept.ledger.done) == (1, 0)


def test_a_worker_that_comes_back_without_its_work_gives_it_up() -> None:
    kept = Kept()
    kept.submit("a", "b", "c")
    first, second = kept.lease("w", version(1)), kept.lease("w", version(1))
    other = kept.lease("v", version(1))
    kept.do(kept.ledger.release_others("w", [second.id]))
    assert {one.id for one in kept.ledger.leases} == {second.id, other.id}
    assert kept.offer(first).reason == model.NOT_LIVE


def test_a_worker_gives_back_its_own_leases_only() -> None:
    kept = Kept()
    kept.submit("a")
    lease = kept.lease("w", version(1))
    assert kept.do(kept.ledger.release(lease.id, "thief", "mine now", counts=True)) == 0
    assert kept.do(kept.ledger.release(lease.id, "w", model.RELEASED, counts=False)) == 1
    assert kept.ledger.queued == 1


def test_the_last_attempt_of_a_group_is_told_to_the_trainer() -> None:
    kept = Kept(Policy(max_attempts=2))
    kept.submit("poison", "b")
    for _ in range(2):
        lease = kept.lease("w", version(1))
        kept.do(kept.ledger.give_back(lease, model.WORKER_LOST))
    done = kept.ledger.deliverable()
    assert done is not None
    assert done.failed is not None
    assert "WorkerLost" in done.failed
    assert done.payload == b""
    assert kept.consume() == "poison"
    assert kept.ledger.pending == 1


def test_submitting_again_what_is_held_changes_nothing() -> None:
    kept = Kept()
    assert kept.submit("a", "b", "a") == 2
    assert kept.submit("b", "c") == 1
    lease = kept.lease("w", version(1))
    kept.offer(lease)
    assert kept.submit("a") == 0
    kept.consume()
    assert kept.submit("a") == 1  # what is consumed is forgotten: a new epoch of training may use the id


def test_fixed_order_delivers_in_order_of_submission() -> None:
    kept = Kept()
    kept.do(kept.ledger.set_order("fixed"))
    kept.submit("a", "b", "c")
    leases = [kept.lease(name, version(1)) for name in ("x", "y", "z")]
    kept.offer(leases[2])
    kept.offer(leases[1])
    assert kept.ledger.deliverable() is None
    kept.offer(leases[0])
    assert [kept.consume() for _ in range(3)] == ["a", "b", "c"]


def test_order_by_throughput_delivers_what_is_there() -> None:
    kept = Kept()
    kept.submit("a", "b")
    leases = [kept.lease(name, version(1)) for name in ("x", "y")]
    kept.offer(leases[1])
    assert kept.consume() == "b"
    assert kept.consume() is None


@pytest.mark.parametrize(
    ("order", "behind", "fits"),
    [
        ("throughput", 0, True),
        ("throughput", 2, True),
        ("throughput", 3, False),
        ("fixed", 0, True),
        ("fixed", 1, False),
    ],
)
def test_only_fresh_versions_of_the_newest_lineage_get_work(order: model.Order, behind: int, fits: bool) -> None:
    kept = Kept(Policy(max_staleness=2))
    kept.do(kept.ledger.set_order(order))
    assert kept.ledger.fits(version(7 - behind), version(7)) is fits
    assert not kept.ledger.fits(version(7 - behind, OTHER_LINEAGE), version(7))
    assert not kept.ledger.fits(version(8), version(7))  # from a future that the trainer left


@pytest.mark.parametrize(
    ("group", "message"),
    [
        (Prompts("", 1, b""), "printable"),
        (Prompts("a b", 1, b""), "printable"),
        (Prompts("x" * 129, 1, b""), "printable"),
        (Prompts("a", 0, b""), "samples"),
        (Prompts("a", 1 << 20, b""), "samples"),
        (Prompts("a", 1, b"x" * 2001), "maxPayloadBytes"),
    ],
)
def test_a_group_beyond_its_limits_is_refused_and_none_of_its_batch_is_taken(group: Prompts, message: str) -> None:
    kept = Kept(Policy(max_payload_bytes=2000))
    with pytest.raises(WorkError, match=message):
        kept.ledger.submit([Prompts("good", 1, b""), group])
    assert kept.ledger.pending == 0


def test_a_full_ledger_says_that_results_must_be_consumed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "MAX_GROUPS", 2)
    kept = Kept()
    kept.submit("a", "b")
    with pytest.raises(WorkFullError, match="consume results"):
        kept.submit("c")
    assert kept.submit("a") == 0
    monkeypatch.setattr(model, "MAX_GROUPS", 100)
    monkeypatch.setattr(model, "MAX_PROMPT_BYTES", 20)
    with pytest.raises(WorkFullError, match="bytes together"):
        kept.submit("c")


def test_results_wait_for_room_but_never_the_one_that_the_trainer_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "MAX_RESULT_BYTES", 10)
    kept = Kept()
    kept.do(kept.ledger.set_order("fixed"))
    kept.submit("a", "b", "c")
    leases = [kept.lease(name, version(1)) for name in ("x", "y", "z")]
    assert kept.offer(leases[1], payload=b"12345678").counted
    verdict = kept.offer(leases[2], payload=b"12345678")
    assert (verdict.reason, verdict.retry) == (model.NO_ROOM, True)
    assert kept.offer(leases[0], payload=b"12345678").counted
    assert [kept.consume(), kept.consume()] == ["a", "b"]
    assert kept.offer(leases[2], payload=b"12345678").counted


def test_a_result_above_the_limit_goes_back() -> None:
    kept = Kept(Policy(max_payload_bytes=10))
    kept.do(kept.ledger.submit([Prompts("a", 1, b"p")]))
    lease = kept.lease("w", version(1))
    verdict = kept.offer(lease, payload=b"x" * 11)
    assert (verdict.reason, verdict.retry) == (model.NO_ROOM, False)
    assert kept.ledger.queued == 1


def test_names_of_leases_never_come_back() -> None:
    kept = Kept()
    kept.submit("a", "b", "c")
    first = kept.lease("w", version(1))
    kept.do(kept.ledger.begin())  # a start after which the lease's record may be lost
    second = kept.lease("w", version(1))
    assert first.id == "3-1-0"
    assert second.id == "3-2-0"
    assert kept.offer(first).counted  # a restart alone ends no lease


def test_what_is_remembered_of_ended_leases_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_module, "MAX_ENDED", 3)
    kept = Kept(Policy(max_attempts=1000))
    kept.submit("a")
    ended = []
    for _ in range(5):
        ended.append(kept.lease("w", version(1)))
        kept.do(kept.ledger.give_back(ended[-1], model.EXPIRED))
    assert "long ago" in kept.offer(ended[0]).message
    assert "expired" in kept.offer(ended[-1]).message


def test_changes_out_of_order_are_refused() -> None:
    kept = Kept()
    kept.submit("a")
    with pytest.raises(WorkError, match="there already"):
        kept.ledger.apply(model.Submitted(0, "z", 1, 0, b""), 0.0)
    with pytest.raises(WorkError, match="no result"):
        kept.ledger.apply(model.Consumed(0), 0.0)
    with pytest.raises(WorkError, match="no work lease"):
        kept.ledger.apply(model.Returned("3-1-0", model.EXPIRED, True), 0.0)
    with pytest.raises(WorkError, match="out of order"):
        kept.ledger.apply(model.Begun(0, 0, "fixed"), 0.0)
