"""Conclusions of the chapter measure: each test would refute one."""

import pytest

import roofline_helpers as rh

KINDS = "chain", "elementwise", "normalisations", "decode", "batched", "attention", "backward"


def test_implementations_of_attention_are_nearer_to_each_other_than_of_a_softmax():
    """The slower of a pair takes 100 µs or more; the faster one may take less."""
    apart = {}
    for record in rh.measured.device_records().values():
        times = {}
        for s in record.samples:
            counts = s.group in KINDS and s.name.endswith("bf16") and s.flops
            if record.chip and counts and "op by op" not in s.name:
                times.setdefault(s.name, []).append(s.seconds)
        for name, seconds in times.items():
            if max(seconds) >= 1e-4:
                apart[record.name, name] = max(seconds) / min(seconds)
    softmax = [ratio for (_, name), ratio in apart.items() if name.startswith("softmax")]
    others = [ratio for (_, name), ratio in apart.items() if not name.startswith("softmax")]
    assert max(softmax) == pytest.approx(3, abs=0.1)
    assert max(others) == pytest.approx(1.5, abs=0.05)
