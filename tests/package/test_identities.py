"""What must hold for all kernels that are fused, and for every shown number."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline_helpers import fuse, total, work
from roofline_helpers.common.show import significant

sizes = st.integers(1, 5000)


@st.composite
def kernels(draw, x="x", y="y", n=None):
    """One of the operations on n elements; its input is x and its output y."""
    count = draw(sizes) if n is None else n
    pick = draw(st.integers(0, 5))
    if pick == 0:
        return work.relu(count, x=x, y=y)
    if pick == 1:
        return work.gelu(count, x=x, y=y).reading(**{x: draw(st.integers(1, 3))})
    if pick == 2:
        return work.add(count, x=x, other="residual", y=y)
    if pick == 3:
        return work.softmax(1, count, x=x, y=y)
    if pick == 4:
        return work.layernorm(1, count, x=x, y=y)
    return work.dropout(count, x=x, y=y)


@st.composite
def chains(draw):
    """Kernels that hand one tensor from each to the next."""
    n = draw(sizes)
    length = draw(st.integers(1, 6))
    return [draw(kernels(f"t{i}", f"t{i + 1}", n)) for i in range(length)]


# --- counts ---------------------------------------------------------------------------------------


@given(chains())
def test_fusing_never_adds_bytes_and_keeps_flops(chain):
    fused, apart = fuse(*chain), total(*chain)
    assert fused.bytes <= apart.bytes
    assert fused.flops == apart.flops == sum(job.flops for job in chain)
    assert fused.transcendentals == apart.transcendentals
    assert apart.bytes == sum(job.bytes for job in chain)
    assert set(fused.writes) == {f"t{len(chain)}"}


@given(chains())
def test_keeping_a_tensor_costs_its_write_and_no_more(chain):
    names = [name for job in chain for name in job.writes]
    fused = fuse(*chain)
    kept = fuse(*chain, keep=names)
    assert kept.bytes - fused.bytes == sum(job.written_bytes for job in chain[:-1])
    assert kept.bytes <= total(*chain).bytes


@given(chains())
def test_fusing_in_two_steps_is_fusing_at_once(chain):
    for cut in range(1, len(chain)):
        steps = fuse(fuse(*chain[:cut]), fuse(*chain[cut:]))
        assert dict(steps.writes) == dict(fuse(*chain).writes)
        assert steps.bytes == fuse(*chain).bytes


# --- showing --------------------------------------------------------------------------------------


@given(st.floats(1e-9, 1e18), st.integers(1, 15))
def test_a_shown_number_reads_back(value, digits):
    shown = float(significant(value, digits).replace(",", ""))
    assert shown == pytest.approx(value, rel=0.51 * 10 ** (1 - digits))
