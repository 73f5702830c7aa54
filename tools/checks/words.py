"""`python -m tools.checks.words`: words that must not be in the repository, whatever the file's language.

Package registries by address, paths of somebody's machine, notes to self without an anchor, serialisation that runs
code, and the marks of an unfinished merge. Reads text files only. The needles are put together from pieces, so that
this file and its tests do not find themselves.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from tools.checks import report
from tools.checks.files import read_text, repository_files
from tools.checks.report import Finding


def _joined(*pieces: str) -> str:
    return "".join(pieces)


# Installers find their registry in the user's own configuration; an address here would override a mirror or an air gap.
REGISTRIES = (
    _joined("py", "pi.org"),
    _joined("pypi.", "python.org"),
    _joined("files.", "pythonhosted.org"),
    _joined("download.", "pytorch.org"),
    _joined("conda.", "anaconda.org"),
    _joined("proxy.", "golang.org"),
    _joined("sum.", "golang.org"),
    _joined("go", "proxy.io"),
    _joined("go", "proxy.cn"),
    _joined("registry.", "npmjs."),
    _joined("registry.", "yarnpkg."),
    _joined("crates", ".io"),
    _joined("ruby", "gems.org"),
    _joined("deb.", "debian.org"),
    _joined("security.", "debian.org"),
    _joined("archive.", "ubuntu.com"),
    _joined("security.", "ubuntu.com"),
    _joined("ports.", "ubuntu.com"),
    _joined("dl-cdn.", "alpinelinux.org"),
)
NOTES = _joined("TO", "DO|FIX", "ME|X", "XX")
UNSAFE_MODULES = _joined("c?pic", "kle|cloudpic", "kle|dill|mar", "shal|shelve|joblib")


@dataclass(frozen=True)
class Rule:
    """One kind of word that is refused: how to find it, where, and what to do about it."""

    name: str
    pattern: re.Pattern[str]
    advice: str
    only: tuple[str, ...] = ("*",)
    spared: tuple[str, ...] = ()

    def applies_to(self, path: Path) -> bool:
        """Whether a file is one that the rule looks at; `*` in its globs crosses folders."""
        name = path.as_posix()
        return any(fnmatchcase(name, glob) for glob in self.only) and not any(fnmatchcase(name, g) for g in self.spared)


RULES: Sequence[Rule] = (
    Rule(
        name="registry",
        pattern=re.compile("|".join(map(re.escape, REGISTRIES)), re.IGNORECASE),
        advice="leave the registry's address to the user's own configuration",
    ),
    Rule(
        # As an absolute path only: `sync_runtime/work/`, `$HOME/work/` and URLs have something before the slash.
        name="machine",
        pattern=re.compile(r"(?<![\w.}~/)-])/(?:" + _joined("ho", "me/|ro", "ot/|Us", "ers/") + r")"),
        advice="a path of one machine: take it from the environment, or make it relative",
        spared=("tests/*",),  # tests make up such paths to see them handled
    ),
    Rule(
        name="workplace",
        pattern=re.compile(r"(?<![\w.}~/)-])/wo" + r"rk/(?:main|shared)\b"),
        advice="a path of one machine: take it from the environment, or make it relative",
    ),
    Rule(
        # `context.TODO()` is Go's. An anchor has a number in it; a person's name is none.
        name="note",
        pattern=re.compile(rf"(?<![.\w])(?:{NOTES})\b(?!\([^)\s]*\d[^)\s]*\))"),
        advice="a note needs an anchor in brackets, an issue or a record of a decision; or do it now",
    ),
    Rule(
        name="unsafe serialisation",
        pattern=re.compile(
            rf"^\s*(?:import|from)\s+(?:{UNSAFE_MODULES})\b|\b(?:{UNSAFE_MODULES})\.(?:load|dump)s?\b"
            + _joined(r"|allow_pic", r"kle\s*=\s*True|weights_", r"only\s*=\s*False")
        ),
        advice="bytes from elsewhere are hostile: use a format that only holds data",
        only=("*.py", "*.pyi"),
    ),
    Rule(
        name="merge",
        pattern=re.compile(r"^(?:<{7}|>{7}|\|{7})(?: |$)"),
        advice="an unfinished merge: settle it",
    ),
)


def check(root: Path, rules: Sequence[Rule] = RULES) -> Iterator[Finding]:
    """Every refused word in the repository's text files."""
    for path in repository_files(root):
        wanted = [rule for rule in rules if rule.applies_to(path)]
        text = read_text(root / path) if wanted else None
        if text is not None:
            yield from _refused(path, text, wanted)


def _refused(path: Path, text: str, rules: Sequence[Rule]) -> Iterator[Finding]:
    for number, line in enumerate(text.splitlines(), start=1):
        for rule in rules:
            if match := rule.pattern.search(line):
                yield Finding(path, number, f"{match.group().strip()!r} ({rule.name}): {rule.advice}")


def main(arguments: list[str] | None = None) -> int:
    """Run as a command."""
    return report.run("words", "Words that must not be in the repository.", check, arguments)


if __name__ == "__main__":
    sys.exit(main())
