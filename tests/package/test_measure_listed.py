"""What is measured, as accepted: every case on a CPU and on an accelerator, with its counts.

After a change that is meant: python tests/package/test_measure_listed.py > tests/data/cases.txt
"""

from pathlib import Path

import pytest

from roofline.measure import workloads

ACCEPTED = Path(__file__).parents[1] / "data/cases.txt"
LISTS = {
    "on a CPU with 1 GiB": {"cpu": True, "free": 2**30, "quick": False},
    "quick, on a CPU with much memory": {"cpu": True, "free": 2**40, "quick": True},
    "on an accelerator that doesn't tell": {"cpu": False, "free": None, "quick": False},
    "quick, on an accelerator": {"cpu": False, "free": 2**37, "quick": True},
}


def listed(name, patch):
    """A line for each case: its counts, bytes needed, loops, warming, options."""
    cpu, free, quick = LISTS[name].values()
    patch.setattr(workloads, "on_cpu", lambda: cpu)
    patch.setattr(workloads, "free_memory", lambda: free)
    patch.setattr(workloads, "last_cache", lambda: 40 * 2**20)
    lines = []
    for case in workloads.cases(quick):
        of = workloads.unmeasured(case)
        counts = (
            f"{of.flops:.10g} FLOP, {of.matrix_flops:.10g} on the matrix unit, {of.bytes:.10g} B"
        )
        run = f"needs {case.needs}, {case.loops} times, warm {case.warm:g} s {dict(case.options)}"
        lines.append(f"{of.name}, {of.group}, {of.dtype}: {counts}; {run}")
    return "\n".join([name, *lines])


@pytest.mark.parametrize("name", LISTS)
def test_cases_are_those_that_were_accepted(name, monkeypatch):
    accepted = ACCEPTED.read_text("utf-8").split("\n\n")
    assert listed(name, monkeypatch) == accepted[list(LISTS).index(name)].strip()


if __name__ == "__main__":
    with pytest.MonkeyPatch.context() as patch:
        print("\n\n".join(listed(name, patch) for name in LISTS))
