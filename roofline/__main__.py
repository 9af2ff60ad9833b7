"""``python -m roofline``: the command line, as in `roofline.cli`."""

import sys

if __name__ == "__main__":
    from roofline.cli import main

    sys.exit(main())
