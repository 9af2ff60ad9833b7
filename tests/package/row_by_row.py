"""One test for all rows of a table: it looks at every row, and fails with all that it finds."""


def row_by_row(rows, check):
    """Run `check` on each row, a tuple being several arguments; fail with every row's failure."""
    failures = []
    for row in rows:
        arguments = row if isinstance(row, tuple) else (row,)
        try:
            check(*arguments)
        except AssertionError as error:
            failures.append(f"{row}: {error}")
    assert not failures, "\n".join(failures)
