"""Running the cases: failures, deadlines, interruptions, notes, progress."""

from __future__ import annotations

from typing import Any

import pytest
from device_suite import case, run

jax = pytest.importorskip("jax")


def test_a_case_that_fails_does_not_take_the_others_with_it() -> None:
    def fails(x: Any) -> Any:
        raise RuntimeError("no such unit on this device")

    record = run(
        case("good"),
        case("bad", fails),
        case("huge", needs=1e15),
        case("empty", fn=None, make=lambda: 1 / 0),
        case("also good"),
    )
    errors = {sample.name: sample.error for sample in record.samples}
    assert errors["good"] is None
    assert errors["also good"] is None
    assert "no such unit" in str(errors["bad"])
    assert "not enough memory: needs 1 PB" in str(errors["huge"])
    assert "ZeroDivisionError" in str(errors["empty"])
    assert "no such unit" in record.table().to_string()
