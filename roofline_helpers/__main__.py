"""``python -m roofline_helpers``: the command line, as in `roofline_helpers.command`."""

import sys

if __name__ == "__main__":
    from roofline_helpers.command import main

    sys.exit(main())
