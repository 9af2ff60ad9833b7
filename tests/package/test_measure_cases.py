"""The cases: what they count, that all of them run, and what is refused."""

import pytest
from measure_suite import run

from roofline import measure
from roofline.measure.workloads import kernel_cases, level_cases, vector_case

pytestmark = pytest.mark.slow  # kernels are interpreted, processes started


def test_every_kind_of_case_is_measured_and_kept(tmp_path):
    cases = [
        *measure.workloads.memory_cases(2**14),
        *level_cases([2**13]),
        measure.workloads.matmul_case(32, 32, 32, "fp32"),
        measure.workloads.matmul_case(16, 16, 16, "bf16", batch=2),
        measure.workloads.matmul_case(16, 16, 16, "int8"),
        vector_case("fp32", 2**10, 16),
        *kernel_cases(64, 64),
    ]
    record = run(*cases)
    assert [sample.error for sample in record.samples if sample.error] == []
    assert [len(sample.passes) for sample in record.samples] == [1] * len(cases)
    assert set(record.streams) == {
        "read", "write", "copy", "scale", "scale in place", "add", "triad",
    }  # fmt: skip
    assert set(record.peaks) == {"fp32", "bf16", "int8"}
    assert measure.load(measure.save(record, tmp_path / "a.json")) == record
