"""Keep a record that a reader measured, for the page of chips.

    python -m measurements.readers FILE.json --by NAME --url ADDRESS_OF_THE_ISSUE

It goes to ``roofline/data/readers`` if nothing in it beats what is published of its chip;
else it is refused, and everything that is wrong with it is named.
"""

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from roofline import readers
from roofline_helpers.common.records import BadRecord
from tools import books

KEPT = books.ROOT / "roofline/data/readers"
CHECKED = """\
checked: a TPU of the chip table; no stream, matmul or step above a published peak; the book's
         step; versions, command and date
not checked: that this chip took these times, that nothing else used it, its clock"""


def keep(file: Path, by: str, url: str, folder: Path = KEPT) -> Path:
    """Check a record, and write it into the folder; return its file.

    Raises
    ------
    BadRecord
        It can't be read, something is wrong with it, or it is there already.
    """
    record = readers.load(file)
    if wrong := readers.problems(record):
        raise BadRecord("\n".join([f"{file} is refused:", *wrong]))
    if any(one.measured == record.measured for one in readers.kept(folder).values()):
        raise BadRecord(f"{file} is kept already")
    folder.mkdir(exist_ok=True)
    date = record.measured.date[:10]
    kind = record.measured.device.get("chip")
    count = len(list(folder.glob(f"{kind}-{date}*.json")))
    name = f"{kind}-{date}{f'-{count + 1}' if count else ''}"
    return replace(record, by=by, url=url).save(folder / f"{name}.json")


def main() -> int:
    """Read the command line, and keep the record."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--by", required=True, help="who measured it, as the page names them")
    parser.add_argument("--url", required=True, help="the issue or pull request that brought it")
    options = parser.parse_args()
    try:
        kept = keep(options.file, options.by, options.url)
    except BadRecord as error:
        print(error, file=sys.stderr)
        return 1
    print(f"kept: {kept.relative_to(books.ROOT)}; `make book` shows it\n{CHECKED}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
