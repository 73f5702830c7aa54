"""The self-tests of images: every step is a sentence, every fault an exit code."""

from __future__ import annotations

import datetime
import importlib
import os
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sync_runtime.contract.selftest import SelfTestError, Step, run_steps, surroundings
from sync_runtime.identity import selfcheck as identity_check
from sync_runtime.offline import selfcheck as codec_check
from syncgroup import cli, selftest
from syncgroup_operator import __main__ as operator
from syncgroup_operator.handlers import selftest as operator_selftest

pytestmark = pytest.mark.timeout(180)  # the codec's loops are compiled where no test before did it
NOW = datetime.datetime(2026, 11, 1, tzinfo=datetime.UTC)


@pytest.fixture
def as_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests may run as root, which the last step refuses."""
    monkeypatch.setattr(os, "getuid", lambda: 65532)


def test_every_step_is_run_and_told_also_after_one_that_failed() -> None:
    def broken() -> str:
        raise ImportError("no module named torch")

    def wrong() -> str:
        raise SelfTestError("other bits.")

    said: list[str] = []
    steps = (Step("a", broken), Step("b", lambda: "fine."), Step("c", wrong))
    assert run_steps(steps, said.append, (ImportError,)) == 1
    assert said == [
        "FAILED a: ImportError: no module named torch", "ok     b: fine.", "FAILED c: SelfTestError: other bits.",
    ]  # fmt: skip
    assert run_steps(steps[1:2], said.append, ()) == 0


def test_a_defect_of_ours_is_not_hidden() -> None:
    def defect() -> str:
        raise KeyError("x")

    with pytest.raises(KeyError):
        run_steps([Step("a", defect)], lambda _: None, (ImportError,))


def test_root_is_refused_and_a_writable_root_is_said() -> None:
    with pytest.raises(SelfTestError, match="as root"):
        surroundings(read_only=True, uid=0)
    assert "on a read-only root" in surroundings(read_only=True, uid=7)
    assert "shows nothing about a read-only one" in surroundings(read_only=False, uid=7)


@pytest.mark.usefixtures("as_pod")
def test_a_whole_sidecar_passes(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["sidecar", "--self-test"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == [
        f"ok     {name}" for name in ("imports", "codec", "tls", "library", "root")
    ]


@pytest.mark.usefixtures("as_pod")
def test_a_whole_operator_passes(capsys: pytest.CaptureFixture[str]) -> None:
    assert operator.main(["--self-test"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == [
        f"ok     {name}" for name in ("imports", "settings", "tls", "root")
    ]


@pytest.mark.usefixtures("as_pod")
def test_an_operator_whose_environment_is_wrong_fails(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SYNCGROUP_OPERATOR_WORKERS", "none")
    assert operator.main(["--self-test"]) == 1
    assert "FAILED settings: SettingsError: SYNCGROUP_OPERATOR_WORKERS" in capsys.readouterr().out


def test_both_say_which_release_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["sidecar", "--version"]) == 0
    assert operator.main(["--version"]) == 0
    sidecar, replica = capsys.readouterr().out.splitlines()
    assert sidecar.startswith("syncgroup ")
    assert replica.startswith("syncgroup operator ")


def test_a_missing_module_fails_the_step() -> None:
    with pytest.raises(ImportError):
        selftest.imported(("sync_runtime.nothing",))
    assert operator_selftest.check_imports().startswith("all ")


def test_an_image_for_gpus_is_asked_for_its_worker_too() -> None:
    plain, cuda = ([step.name for step in selftest.steps(given)] for given in ({}, {selftest.ENV_VARIANT: "cuda"}))
    assert set(cuda) - set(plain) == {"compiler", "gpu worker"}


@pytest.mark.parametrize(
    ("variables", "code", "said"),
    [({}, 0, "triton finds a C compiler"), ({"CC": "false"}, 1, "SelfTestError: triton cannot compile its launchers")],
)
def test_an_image_for_gpus_must_compile_as_triton_does(
    variables: dict[str, str], code: int, said: str, tmp_path: Path
) -> None:
    """In a process of its own: triton looks for its compiler once."""
    program = "from syncgroup.selftest import *; sys.exit(run_steps([Step('c', check_compiler)], say, BROKEN))"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; {program}"],
        env=os.environ | {"TRITON_CACHE_DIR": str(tmp_path)} | variables, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    assert said in done.stdout


class FakeTorch:
    """As much of torch as says what it was built for."""

    __version__ = "2"

    class version:  # noqa: N801 torch's own name
        """What it was built for."""

        cuda: str | None = None


def test_a_torch_without_cuda_fails_an_image_for_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selftest, "WORKER_MODULES", ())
    monkeypatch.setattr(importlib, "import_module", lambda _: FakeTorch)
    with pytest.raises(SelfTestError, match="built without CUDA"):
        selftest.check_gpu_worker()


def test_other_bits_fail_the_codec_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec_check, "apply", lambda *_, **__: None)
    with pytest.raises(SelfTestError, match="a fast delta gave other bits"):
        codec_check.codec_sentence()


def test_two_members_that_cannot_talk_fail_the_tls_step(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise ssl.SSLError("no cipher in common")

    assert "rollout-0 met trainer-0" in identity_check.tls_sentence(datetime.datetime.now(datetime.UTC))
    with monkeypatch.context() as patched:
        patched.setattr(identity_check, "_shake_hands", refuse)
        with pytest.raises(SelfTestError, match="no cipher in common"):
            identity_check.tls_sentence(NOW)
    with pytest.raises(SelfTestError, match="could not talk"):  # certificates of years ago
        identity_check.tls_sentence(NOW.replace(year=2020))


def test_a_library_that_is_copied_wrong_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    library = importlib.import_module("syncgroup.commands.library")
    hashes = iter(("a", "b"))
    monkeypatch.setattr(library, "hash_of", lambda _: next(hashes))
    monkeypatch.setattr(library, "copied", lambda _: Path())
    with pytest.raises(SelfTestError, match="other bytes"):
        selftest.check_library()
