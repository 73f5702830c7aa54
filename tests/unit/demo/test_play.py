"""SmolLM2 in the demo's clusters: the contract takes its group, its pods find the model, its story waits and proves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from examples.grpo.settings import SMOLLM2
from sync_runtime.contract.documents import load_resource
from sync_runtime.contract.syncgroup import SyncGroup
from tests.unit.demo.scenes import member, scene, steps
from tools.demo import __main__ as command
from tools.demo import group, play, smollm2
from tools.demo.facts import Scene
from tools.demo.group import Document, Programs
from tools.demo.nodes import Nodes

MODEL = Path("/cache/models/model.gguf")


def containers(document: Document) -> list[Document]:
    spec = document["spec"]
    templates = (spec["trainer"]["template"], *(one["template"] for one in spec["rollouts"]))
    return [one for template in templates for one in template["spec"]["containers"]]


def test_its_group_has_the_patience_that_a_slow_model_needs() -> None:
    found = load_resource(smollm2.patient(group.load()))
    assert isinstance(found, SyncGroup)
    assert found.spec.lease.duration_seconds > 10 * found.spec.lease.renew_interval_seconds
    assert found.spec.work.lease_seconds > smollm2.STEP_S
    room = found.spec.runtime.storage.size_bytes - found.spec.sync.retention.bytes
    assert room > 2 * smollm2.full_bytes(), "a mirror of the weights, and one that is being made"


@pytest.mark.parametrize("image", [None, "syncgroup.local/examples:1"])
def test_its_pods_run_the_example_and_find_the_file(image: str | None) -> None:
    document = group.runnable(smollm2.patient(group.load()), Programs(smollm2.RUN, image=image, model=MODEL))
    assert isinstance(load_resource(document), SyncGroup)
    for one in containers(document):
        words = one["command"]
        assert words[1:3] == ["-m", "examples.grpo.pod"]
        assert words[words.index("--model") + 1] == "smollm2"
        assert words[words.index("--gguf") + 1] == "/models/model.gguf"
        assert {"name": "models", "mountPath": "/models", "readOnly": True} in one["volumeMounts"]
    volumes = document["spec"]["rollouts"][0]["template"]["spec"]["volumes"]
    assert {"name": "models", "hostPath": {"path": "/cache/models"}} in volumes


def test_from_an_image_nothing_of_this_machine_but_the_model_is_in_a_pod() -> None:
    document = group.runnable(group.load(), Programs(smollm2.RUN, image="syncgroup.local/examples:1", model=MODEL))
    for one in containers(document):
        assert (one["image"], one["imagePullPolicy"]) == ("syncgroup.local/examples:1", "Never")
        assert one["command"][0] == "python"
        assert {mount["name"] for mount in one["volumeMounts"]} <= {"run", "models"}
        assert {"name": "OMP_NUM_THREADS", "value": "1"} in one["env"]
    assert group.stop_command(Programs(image="x"))[0] == "python"


def test_the_command_that_ends_training_writes_the_file_that_the_trainer_looks_for() -> None:
    words = group.stop_command()
    assert compile(words[2], "stop", "exec")
    assert group.STOP_FILE in words[2]


def test_its_story_is_start_learn_proof_and_every_action_is_one_of_the_nodes() -> None:
    beats = smollm2.story(7)
    assert [one.act for one in beats] == ["start", "learn", "proof"]
    assert {one.action for one in beats if one.action} <= set(dir(Nodes))
    assert "7 steps" in beats[1].waits_for


def test_it_has_learned_when_the_steps_are_there_and_every_rollout_has_moved() -> None:
    moved = scene(steps=steps(3), members=(member("us-east", seq=2), member("eu-west", seq=1)), seq=2)
    assert smollm2.trained(4, moved) is None
    assert "3 steps, version 2" in (smollm2.trained(3, moved) or "")
    assert smollm2.trained(3, replace(moved, members=(member("us-east", seq=2), member("eu-west", seq=0)))) is None
    assert smollm2.trained(0, Scene()) is None


def test_the_tiny_run_is_played_unless_another_is_wanted() -> None:
    found = play.tiny(short=True)
    assert (found.programs, found.document, found.archives) == (group.DEFAULT, group.load(), ())
    assert not found.needs_nodes
    assert smollm2.RUN == replace(SMOLLM2, steps=smollm2.RUN.steps)


def test_options_of_smollm2_are_refused_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--plain", "--steps", "3"]) == 1
    assert "belong to --model smollm2" in capsys.readouterr().err


def test_no_steps_are_not_taken_for_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--plain", "--model", "smollm2", "--steps", "0"]) == 1
    assert "--steps is 0: give 1 or more" in capsys.readouterr().err
