"""The command line: ``python -m roofline_helpers measure …`` and ``… explain SCRIPT.py:FUNCTION``.

Measuring a device needs no other word; `explain` takes its own options.
"""

import sys

if __name__ == "__main__":
    if sys.argv[1:2] == ["explain"]:
        from roofline_helpers.explain import command

        sys.exit(command.main(sys.argv[2:]))
    from roofline_helpers import measure

    sys.exit(measure.main())
