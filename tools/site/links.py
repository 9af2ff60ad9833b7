"""Ask every outside address that the site's pages link to whether it is still there.

python -m tools.site.links                one line for each that is gone; the exit status stays 0
python -m tools.site.links --strict       1 where one is gone

Some hosts refuse programs: their answers (401, 403, 405, 429, 999) count as "may be there".
"""

from __future__ import annotations

import argparse
import sys
import time
import urllib.error
import urllib.request
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urldefrag, urlsplit

from tools import books

REFUSES = {401, 403, 405, 406, 418, 429, 503, 999}
AGENT = "Mozilla/5.0 (compatible; link check of a book)"


class Links(HTMLParser):
    """Collects what ``<a href>`` points to."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep an address."""
        address = dict(attrs).get("href") if tag == "a" else None
        if address and urlsplit(address).scheme in {"http", "https"}:
            self.found.add(urldefrag(address).url)


def outside(site: Path) -> dict[str, list[str]]:
    """Return the outside addresses of a site, each with the pages that link to it."""
    pages = defaultdict(list)
    for path in sorted(site.rglob("*.html")):
        reader = Links()
        reader.feed(path.read_text("utf-8"))
        for address in reader.found:
            pages[address].append(path.relative_to(site).as_posix())
    return dict(sorted(pages.items()))


def answer(address: str, patience: float = 20) -> str:
    """Return "ok", "refused" or what is wrong; tries twice."""
    problem = ""
    for attempt in range(2):
        time.sleep(3 * attempt)
        request = urllib.request.Request(address, headers={"User-Agent": AGENT, "Accept": "*/*"})
        try:
            with urllib.request.urlopen(request, timeout=patience):
                return "ok"
        except urllib.error.HTTPError as error:
            if error.code in REFUSES:
                return "refused"
            problem = f"HTTP {error.code}"
        except (OSError, ValueError) as error:
            problem = f"{type(error).__name__}: {error}"
    return problem


def main() -> int:
    """Ask, and print what is gone."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("site", type=Path, nargs="?", default=books.ROOT / "_build/html")
    parser.add_argument("--strict", action="store_true", help="fail where an address is gone")
    options = parser.parse_args()
    pages = outside(options.site)
    with ThreadPoolExecutor(8) as pool:
        answers = dict(zip(pages, pool.map(answer, pages), strict=True))
    gone = {one: word for one, word in answers.items() if word not in {"ok", "refused"}}
    for address, word in gone.items():
        print(f"{address}: {word} (on {', '.join(pages[address])})")
    refused = sum(word == "refused" for word in answers.values())
    print(f"{len(pages)} outside addresses: {len(gone)} gone, {refused} refuse programs")
    return 1 if gone and options.strict else 0


if __name__ == "__main__":
    sys.exit(main())
