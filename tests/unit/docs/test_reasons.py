"""Every reason that a condition, an Event or a replacement can have is explained, and no other."""

from __future__ import annotations

import re

from syncgroup_operator import reasons
from tests.support.pages import REPOSITORY

PAGE = (REPOSITORY / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
TYPES = {
    reasons.READY, reasons.RECONCILING, reasons.STALLED, reasons.TRAINER_READY, reasons.ROLLOUTS_READY,
    reasons.LINKS_HEALTHY, reasons.CLUSTERS_REACHABLE, reasons.IDENTITY_VALID,
}  # fmt: skip
"""Types of conditions, which are no reasons; `Suspended` and `Connected` are both."""
MEMBERS_OWN = "| member says | means | do |"
UNUSED = "## Words that this release does not use"


def known() -> set[str]:
    words = {value for name, value in vars(reasons).items() if name.isupper() and isinstance(value, str)}
    return words - TYPES


def explained() -> set[str]:
    """The first column of every table of reasons, and the list at the end."""
    body, _, unused = PAGE.partition(UNUSED)
    tables = re.split(r"\n\n", body)
    rows = [row for table in tables if table.startswith("| reason |") for row in table.splitlines()]
    found = {word for row in rows for word in re.findall(r"^\| `(\w+)`", row)}
    return found | set(re.findall(r"`(\w+)`", unused))


def test_every_reason_is_explained_and_every_explained_one_exists() -> None:
    assert explained() == known()


def test_words_that_are_called_unused_are_used_nowhere() -> None:
    unused = set(re.findall(r"`(\w+)`", PAGE.partition(UNUSED)[2]))
    names = {name for name, value in vars(reasons).items() if isinstance(value, str) and value in unused}
    sources = (REPOSITORY / "operator" / "syncgroup_operator").rglob("*.py")
    text = "\n".join(path.read_text(encoding="utf-8") for path in sources if path.name != "reasons.py")
    assert {name for name in names if f"reasons.{name}" in text} == set()


def test_words_of_members_are_those_that_the_runtime_says() -> None:
    table = PAGE.partition(MEMBERS_OWN)[2].partition("\n\n")[0]
    said = {
        word for row in table.splitlines() for word in re.findall(r"`([A-Z]\w+)`", row.split("|")[1] if row else "")
    }
    sources = [*(REPOSITORY / "sync_runtime").rglob("*.py")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    assert len(said) > 8
    assert {word for word in said if f'"{word}"' not in text} == set()
