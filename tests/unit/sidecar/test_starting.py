"""What keeps a sidecar from starting is told in one plain sentence, with exit code 2."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sync_runtime.bucket.spool import Spool
from sync_runtime.contract import names
from syncgroup import cli
from tests.support.groups import TRAINER, Group, Member

pytestmark = pytest.mark.timeout(30)
LEAF = Member("eu-0", "eu", ("trainer-0",))


@pytest.fixture
def group(tmp_path: Path) -> Group:
    return Group(tmp_path, [TRAINER, LEAF])


@pytest.fixture
def complaint(group: Group, capfd: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs a sidecar that cannot start; its one sentence."""

    def run(*words: str, alone: bool = False) -> str:
        capfd.readouterr()
        usual = () if alone else ("--config", str(group.config), "--member", "trainer-0")
        assert cli.main(["sidecar", *(words or usual)]) == 2
        said = [line for line in capfd.readouterr().err.splitlines() if line]
        assert len(said) == 1, said
        assert said[0].startswith("syncgroup: ")
        assert said[0].endswith((".", "?"))
        return said[0]

    return run


def test_help_needs_nothing_of_the_runtime() -> None:
    program = (
        "import sys; from syncgroup.cli import main\n"
        "try: main(['sidecar', '--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'numba', 'numpy', 'aiohttp', 'torch', 'cryptography'} & set(sys.modules)\n"
        "sys.exit(str(sorted(heavy)) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "group.toml" in done.stdout


def test_a_config_needs_a_member(complaint: Callable[..., str], group: Group) -> None:
    assert "--member" in complaint("--config", str(group.config))


def test_without_a_config_the_environment_must_say_everything(
    complaint: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(names.ENV_GROUP, "demo")
    monkeypatch.delenv(names.ENV_ROLE, raising=False)
    assert names.ENV_ROLE in complaint(alone=True)


def test_a_file_that_is_not_there(complaint: Callable[..., str], tmp_path: Path) -> None:
    assert "No such file" in complaint("--config", str(tmp_path / "none.toml"), "--member", "trainer-0")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('group = "demo"', "group = ", "is not TOML"),
        ('group = "demo"', 'group = "Demo!"', "group"),
        ('role = "Trainer"', 'role = "Rollout"', "parents"),
        ('role = "Trainer"', 'role = "Trainer"\ncolour = "red"', "colour"),
        ('parents = ["trainer-0"]', 'parents = ["nobody"]', "parent"),
        ("127.0.0.1:", "127.0.0.1:x", "address"),
    ],
    ids=["broken", "a bad name", "a rollout without parents", "an unknown field", "an unknown parent", "no address"],
)
def test_a_file_that_is_wrong(group: Group, complaint: Callable[..., str], old: str, new: str, expected: str) -> None:
    group.config.write_text(group.config.read_text().replace(old, new))
    assert expected in complaint()


def test_a_member_that_the_file_does_not_name(group: Group, complaint: Callable[..., str]) -> None:
    said = complaint("--config", str(group.config), "--member", "mars-0")
    assert "mars-0" in said
    assert "trainer-0" in said


def test_certificates_that_are_missing(group: Group, complaint: Callable[..., str]) -> None:
    (group.folder / "certs/trainer-0/tls.key").unlink()
    assert "certificates of trainer-0" in complaint()


def test_certificates_of_another_member(group: Group, complaint: Callable[..., str]) -> None:
    (group.folder / "certs/trainer-0").rename(group.folder / "certs/away")
    (group.folder / "certs/eu-0").rename(group.folder / "certs/trainer-0")
    assert "certificates of trainer-0" in complaint()


def test_a_spool_that_another_process_has(group: Group, complaint: Callable[..., str]) -> None:
    with Spool.open(group.folder / "state/trainer-0/spool", max_bytes=1 << 20, max_versions=4):
        assert "spool" in complaint()


@pytest.mark.parametrize("which", ["data", "control"])
def test_a_port_that_is_taken(group: Group, complaint: Callable[..., str], which: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        text = group.config.read_text()
        if which == "data":
            text = text.replace(f":{group.ports['trainer-0']}", f":{port}")
        else:
            text = text.replace('name = "trainer-0"', f'name = "trainer-0"\ncontrol = "127.0.0.1:{port}"')
        group.config.write_text(text)
        assert str(port) in complaint()
