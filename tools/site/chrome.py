"""Find and start the Chromium that tests the pages.

It is the program that ``CHROMIUM`` names, else one of the machine, else Playwright's own.

python -m tools.site.chrome     says what was found; fails where there is none
"""

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, Error, sync_playwright

# A window of a whole browser takes more than twice the processor time of one of the shell, which
# lays out and runs pages with the same code
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
FLAGS = [
    # Names resolve to this machine or to nothing: the browser's own services stay silent too
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE 127.0.0.1",
    "--in-process-gpu",  # drawn without a GPU: a process less to talk to
]


def executable() -> str | None:
    """Return the path of the machine's own Chromium, or None: then Playwright's is tried."""
    named = os.environ.get("CHROMIUM")
    return named or next((path for name in NAMES if (path := shutil.which(name))), None)


@contextmanager
def launched() -> Iterator[Browser]:
    """Start a Chromium, and end it.

    Raises
    ------
    playwright.sync_api.Error
        Where there is none, or it does not start.
    """
    with sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(executable_path=executable(), args=FLAGS)
        except Error:
            if "CHROMIUM" in os.environ:
                raise
            browser = playwright.chromium.launch(args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


if __name__ == "__main__":
    try:
        with launched() as one:
            print(f"Chromium {one.version}: {executable() or 'of Playwright'}")
    except Error as error:
        print(f"no Chromium: {error.message.splitlines()[0]}", file=sys.stderr)
        sys.exit(1)
