from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from syncgroup import cli

# Most of these start a Python, or write the CRDs: seconds under coverage on a busy machine.
pytestmark = pytest.mark.timeout(20)

HIDE_PACKAGE = """
import sys
hidden = sys.argv.pop(1)
class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == hidden:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Hide())
from syncgroup.cli import main
sys.exit(main())
"""


def run_without(package: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in a Python that cannot import a package."""
    command = [sys.executable, "-c", HIDE_PACKAGE, package, *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def test_version_names_release_and_api(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["version"]) == 0
    assert capsys.readouterr().out.endswith("(API syncgroup.dev/v1alpha1)\n")


@pytest.mark.parametrize("package", ["pydantic", "yaml"])
def test_version_needs_no_package_at_all(package: str) -> None:
    assert run_without(package, "version").returncode == 0


@pytest.mark.parametrize("package", ["pydantic", "yaml"])
@pytest.mark.parametrize("command", [("validate", "x.yaml"), ("crds",)], ids=lambda command: command[0])
def test_a_missing_extra_ends_in_a_sentence_that_names_it(command: tuple[str, ...], package: str) -> None:
    run = run_without(package, *command)
    assert run.returncode == 2
    assert run.stderr == (
        f"syncgroup: `{command[0]}` needs the Python package {package}, which is not installed: "
        "pip install 'syncgroup[operator]'\n"
    )


def test_a_missing_module_of_our_own_is_a_defect_and_not_a_missing_extra() -> None:
    run = run_without("sync_runtime", "validate", "x.yaml")
    assert run.returncode == 1
    assert "Traceback" in run.stderr


def test_no_command_shows_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main([])
    assert caught.value.code == 2
    assert "COMMAND" in capsys.readouterr().err


def test_help_lists_every_command_without_importing_any() -> None:
    run = run_without("pydantic", "--help")
    assert run.returncode == 0
    assert all(name in run.stdout for name in cli.SUBCOMMANDS)


@pytest.mark.parametrize("name", cli.SUBCOMMANDS)
def test_every_command_has_help_of_its_own(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main([name, "--help"])
    assert caught.value.code == 0
    assert f"usage: syncgroup {name}" in capsys.readouterr().out


def test_as_a_kubectl_plug_in_it_calls_itself_that(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["/usr/local/bin/kubectl-syncgroup", "crds", "--output", "/dev/null/x"])
    assert cli.main() == 2
    assert capsys.readouterr().err.startswith("kubectl syncgroup: cannot write to /dev/null/x: ")


def test_crds_are_printed_or_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["crds"]) == 0
    printed = capsys.readouterr().out
    assert cli.main(["crds", "--output", str(tmp_path)]) == 0
    written = [Path(line) for line in capsys.readouterr().out.splitlines()]
    assert sorted(written) == sorted(tmp_path.iterdir())
    assert printed == "---\n".join(path.read_text(encoding="utf-8") for path in written)


@pytest.mark.parametrize("command", ["crds", "version"])
def test_a_reader_that_goes_away_is_no_crash(command: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer) as closed_pipe:
        run = subprocess.run(
            [sys.executable, "-m", "syncgroup.cli", command],
            check=False,
            stdout=closed_pipe,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert (run.returncode, run.stderr) == (1, "")
