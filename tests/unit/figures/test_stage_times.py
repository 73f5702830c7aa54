"""What a sidecar keeps of the times that stages took."""

from __future__ import annotations

from sync_runtime.control.exposition import flat
from sync_runtime.sidecar.stage_times import StageTimes


def test_stages_are_kept_apart_and_words_that_are_no_stage_left_out() -> None:
    times = StageTimes()
    times.all_took({"encode": 2000, "spool": 500_000, "copy": 7, "sign": -1})
    times.took("encode", 4000)
    found = flat(times.readings(is_rollout=False))
    assert found['syncgroup_stage_seconds_count{stage="encode"}'] == 2
    assert found['syncgroup_stage_seconds_sum{stage="encode"}'] == 0.006
    assert found['syncgroup_stage_seconds_count{stage="spool"}'] == 1
    assert {name.partition("{")[0] for name in found} == {
        "syncgroup_stage_seconds_bucket", "syncgroup_stage_seconds_sum", "syncgroup_stage_seconds_count"
    }  # fmt: skip
    assert not [name for name in found if 'stage="copy"' in name or 'stage="sign"' in name]


def test_pauses_and_synchronisations_are_a_rollouts() -> None:
    times = StageTimes()
    times.paused(3000)
    times.synced(1.5)
    found = flat(times.readings(is_rollout=True))
    assert (found["syncgroup_pause_seconds_sum"], found["syncgroup_sync_seconds_sum"]) == (0.003, 1.5)
    assert not flat(times.readings(is_rollout=False))
