"""Names links of a built site that lead nowhere, and what its pages fetch elsewhere.

python tools/site/check_links.py build/site
"""

import html.parser
import pathlib
import re
import sys
import urllib.parse
from collections.abc import Iterator

# What a browser fetches by itself when it shows a page.
LOADED = {"link": "href", "script": "src", "img": "src", "iframe": "src"}
# Other uses of <link>: where else the page lies, nothing is fetched.
NOT_LOADED = {"canonical", "next", "prev", "index", "search", "help", "author"}


class Page(html.parser.HTMLParser):
    """The targets that a page has, those it links to, and those it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: set[str] = set()
        self.loaded: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.add(given["href"])
        if tag in LOADED and LOADED[tag] in given:
            if not set(given.get("rel", "").split()) & NOT_LOADED:
                self.loaded.add(given[LOADED[tag]])


def faults(site: pathlib.Path) -> Iterator[str]:
    """What is wrong with the pages and styles of a site, a line each."""
    found = site.rglob("*.html")
    # Static files may hold templates.
    found = (path for path in found if "_static" not in path.parts)
    pages = {path: Page(path.read_text("utf-8")) for path in found}
    if not pages:
        yield f"{site}: no page"
    for path, page in pages.items():
        for link in sorted(page.links | page.loaded):
            fault = _fault_of_link(pages, path, link)
            if fault:
                yield f"{path.relative_to(site)}: {fault}"
    for path in site.rglob("*.css"):
        text = path.read_text("utf-8")
        for link in re.findall(
            r"(?:url\(|@import)[\s'\"]*((?:https?:)?//[^)'\"]+)", text
        ):
            yield f"{path.relative_to(site)}: loads {link}"


def _fault_of_link(
    pages: dict[pathlib.Path, Page], path: pathlib.Path, link: str
) -> str | None:
    target = urllib.parse.urlsplit(link)
    if target.scheme or target.netloc:
        fetched = link in pages[path].loaded and target.scheme != "data"
        return f"loads {link}" if fetched else None
    goal = path.parent / urllib.parse.unquote(target.path)
    goal = (goal if target.path else path).resolve()
    if not goal.is_file():
        return f"links to {link}, which is no file"
    anchor = urllib.parse.unquote(target.fragment)
    if goal in pages and anchor and anchor not in pages[goal].anchors:
        return f"links to {link}, an anchor that is not there"
    return None


def main() -> int:
    found = list(faults(pathlib.Path(sys.argv[1]).resolve()))
    for line in found:
        print(f"tools/docs: {line}", file=sys.stderr)
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
