"""Weigh every page, and have Lighthouse judge it: a table, ours next to a default Jupyter Book's.

    npm install --prefix _build/npm lighthouse
    python -m tools.site.lighthouse                     every page of _build/html
    python -m tools.site.lighthouse --pages index notebooks/fusion
    python -m tools.site.lighthouse --default           the same text as a default book, too

Not a part of `make test`: it needs npm, and a minute for four pages. Pages are served on localhost,
compressed as a host does. Lighthouse's own mobile setting: a slow phone on slow 4G.
"""

from __future__ import annotations

import argparse
import functools
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from typing import Any

import yaml

from tools import books
from tools.site import chrome

CATEGORIES = ("performance", "accessibility", "best-practices", "seo")
TEXTS = (".html", ".css", ".js", ".svg", ".txt", ".xml", ".json")
FLAGS = "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run"


class Host(SimpleHTTPRequestHandler):
    """Serves a folder as a host does: texts compressed, files with a hash in their names kept."""

    def send_head(self) -> Any:
        """Answer with a file, compressed where the browser takes it."""
        path = Path(self.translate_path(self.path))
        path = path / "index.html" if path.is_dir() else path
        if not path.is_file():
            self.send_error(404)
            return None
        content = path.read_bytes()
        self.send_response(200)
        if path.suffix in TEXTS and "gzip" in self.headers.get("Accept-Encoding", ""):
            content = gzip.compress(content, 9)
            self.send_header("Content-Encoding", "gzip")
        kind = self.guess_type(str(path))
        self.send_header("Content-Type", f"{kind}; charset=utf-8" if kind[:4] == "text" else kind)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "max-age=31536000" if "_" in self.path else "max-age=600")
        self.end_headers()
        return BytesIO(content)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def served(site: Path) -> Iterator[str]:
    """Serve a site while the block runs; yield its address."""
    handler = functools.partial(Host, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://localhost:{server.server_address[1]}/"
        server.shutdown()


def judged(program: Path, chrome: str, address: str) -> dict[str, Any]:
    """Return Lighthouse's report of one page."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "report.json"
        command = [
            "node",
            str(program),
            address,
            "--quiet",
            "--output=json",
            f"--output-path={out}",
        ]
        command += [f"--chrome-flags={FLAGS}", f"--only-categories={','.join(CATEGORIES)}"]
        environment = {**os.environ, "CHROME_PATH": chrome}
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if not out.is_file():
            raise RuntimeError(f"{address}: {done.stderr[-500:]}")
        return dict(json.loads(out.read_text("utf-8")))


def weights(report: dict[str, Any]) -> tuple[float, float, float]:
    """Return kB of a first load without and with figures, and of all scripts, as transferred."""
    requests = report["audits"]["network-requests"]["details"]["items"]
    total = sum(one.get("transferSize") or 0 for one in requests)
    figures = sum(
        one.get("transferSize") or 0 for one in requests if one.get("resourceType") == "Image"
    )
    scripts = sum(
        one.get("transferSize") or 0 for one in requests if one.get("resourceType") == "Script"
    )
    return (total - figures) / 1e3, total / 1e3, scripts / 1e3


def every_figure(site: Path, name: str) -> float:
    """Return kB of all figures of a page, those that wait below the fold too."""
    text = (site / f"{name}.html").read_text("utf-8")
    names = set(re.findall(r'<img\b[^>]*\bsrc="([^"]+)"', text))
    paths = [(site / name).parent / one for one in names if not one.startswith("data:")]
    return float(sum(path.stat().st_size for path in paths if path.is_file())) / 1e3


def failures(report: dict[str, Any]) -> list[str]:
    """Return the audits that cost points."""
    named = []
    for category in CATEGORIES:
        for reference in report["categories"][category]["auditRefs"]:
            audit = report["audits"][reference["id"]]
            if reference["weight"] and audit["score"] is not None and audit["score"] < 0.9:
                named.append(audit["id"])
    return named


def default_book(target: Path) -> Path:
    """Build the same pages with Jupyter Book's own settings; return the site's folder."""
    ours = yaml.safe_load((books.ROOT / "_config.yml").read_text("utf-8"))
    for name in ("book", "notebooks", "roofline_helpers"):
        shutil.copytree(books.ROOT / name, target / name)
    for name in ("index.md", "_toc.yml"):
        shutil.copy(books.ROOT / name, target / name)
    config = {
        key: ours[key] for key in ("title", "author", "logo", "only_build_toc_files", "parse")
    }
    config["execute"] = {"execute_notebooks": "off"}
    settings = ours["sphinx"]["config"]
    config["sphinx"] = {
        "extra_extensions": [one for one in settings["extensions"] if "." in one],
        "local_extensions": {"computed": "book/_ext"},
        "config": {"bibtex_bibfiles": settings["bibtex_bibfiles"]},
    }
    (target / "_config.yml").write_text(yaml.safe_dump(config), "utf-8")
    start = "from jupyter_book.cli.main import main; main()"
    subprocess.run(
        [sys.executable, "-c", start, "build", str(target), "-q"], check=True, capture_output=True
    )
    return target / "_build/html"


def row(label: str, name: str, site: Path, report: dict[str, Any]) -> str:
    """Return one line of the table."""
    scores = [round(100 * report["categories"][one]["score"]) for one in CATEGORIES]
    light, first, scripts = weights(report)
    everything = light + every_figure(site, name)
    audits = report["audits"]
    cells = [label, *map(str, scores), f"{light:.0f}", f"{first:.0f}", f"{everything:.0f}"]
    cells += [f"{scripts:.0f}", f"{audits['largest-contentful-paint']['numericValue'] / 1e3:.1f}"]
    cells += [
        f"{audits['cumulative-layout-shift']['numericValue']:.3f}",
        ", ".join(failures(report)),
    ]
    return f"| {' | '.join(cells)} |"


def main() -> int:
    """Judge the pages, print the table, fail where a score of ours is below the least."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--site", type=Path, default=books.ROOT / "_build/html")
    parser.add_argument("--pages", nargs="*", default=books.pages())
    parser.add_argument("--npm", type=Path, default=books.ROOT / "_build/npm")
    parser.add_argument("--chrome", default=chrome.executable(chrome.WHOLE))
    parser.add_argument(
        "--default", action="store_true", help="also a default book of the same text"
    )
    parser.add_argument("--least", type=int, default=95)
    parser.add_argument("--out", type=Path, default=books.ROOT / "_build/lighthouse.md")
    options = parser.parse_args()
    program = options.npm / "node_modules/lighthouse/cli/index.js"
    if not program.is_file() or not options.chrome:
        print("needs Chromium, and `npm install --prefix _build/npm lighthouse`", file=sys.stderr)
        return 2
    header = (
        "page, performance, accessibility, best practices, SEO, kB without figures, kB of a first"
    )
    header += " load, kB with all figures, kB of scripts, LCP s, CLS, below 90"
    columns = header.split(", ")
    lines = [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    bad = []
    with tempfile.TemporaryDirectory() as folder:
        sites = {"": options.site}
        if options.default:
            sites["default: "] = default_book(Path(folder))
        for prefix, site in sites.items():
            with served(site) as address:
                for name in options.pages:
                    report = judged(program, options.chrome, f"{address}{name}.html")
                    lines.append(row(prefix + name, name, site, report))
                    print(lines[-1], flush=True)
                    least = min(report["categories"][one]["score"] for one in CATEGORIES)
                    if not prefix and 100 * least < options.least:
                        bad.append(name)
    options.out.write_text("\n".join(lines) + "\n", "utf-8")
    print(f"table: {options.out}" + (f"; below {options.least}: {', '.join(bad)}" if bad else ""))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
