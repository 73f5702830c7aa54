"""Links lead somewhere: to files, and to headings that exist. No network is asked."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.support.pages import REPOSITORY, anchors, links, pages

PAGES = pages()
DOCS = sorted((REPOSITORY / "docs").glob("*.md"))


def broken(page: Path) -> list[str]:
    """What is wrong with a page's links, in sentences."""
    found = []
    for link in links(page):
        parts = urlsplit(link)
        if parts.scheme:
            if parts.scheme != "https" or "." not in parts.netloc:
                found.append(f"{link}: links outside are https")
            continue
        target = (page.parent / parts.path).resolve() if parts.path else page
        if not target.exists() or REPOSITORY not in (target, *target.parents):
            found.append(f"{link}: there is no such file")
        elif parts.fragment and (target.suffix != ".md" or parts.fragment not in anchors(target)):
            found.append(f"{link}: there is no such heading")
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    assert broken(page) == []


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.unit.docs.test_links.REPOSITORY", tmp_path)
    page, other = tmp_path / "a.md", tmp_path / "b.md"
    other.write_text("# One: two & `three`\n\n## Same\n\n## Same\n\n```\n# no heading\n```\n")
    page.write_text(
        "[good](b.md) [good](b.md#one-two--three) [good](#here) [good](b.md#same-1) ![good](b.md)\n\n# Here\n\n"
        "[bad](c.md) [bad](b.md#no-heading) [bad](../x.md) [bad](http://plain.example)\n\n"
        "`[code](nowhere.md)`\n\n    [shown](nowhere.md)\n\n```\n[fenced](nowhere.md)\n```\n"
    )
    assert [line.partition(":")[0] for line in broken(page)] == ["c.md", "b.md#no-heading", "../x.md", "http"]


def test_every_page_of_the_docs_can_be_reached_from_the_readme() -> None:
    reached, waiting = set[Path](), [REPOSITORY / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in reached or page.suffix != ".md" or not page.is_file():
            continue
        reached.add(page)
        waiting += [(page.parent / urlsplit(link).path).resolve() for link in links(page) if urlsplit(link).path]
    assert [page.name for page in DOCS if page not in reached] == []
