"""``python -m roofline_helpers``: the command line, as in `roofline_helpers.cli`."""

import sys

if __name__ == "__main__":
    from roofline_helpers.cli import main

    sys.exit(main())
