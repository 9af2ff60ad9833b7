"""What must hold for every roofline and every kernel, tried on random ones."""

import operator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline_helpers import Roofline, Work, fuse, total, work
from roofline_helpers.common.dtypes import BITS, COMPUTED
from roofline_helpers.common.show import significant

positive = st.floats(1e-3, 1e18)
intensities = st.just(0.0) | st.floats(1e-30, 1e9)
sizes = st.integers(1, 5000)
even = sizes.map(lambda n: 2 * n)  # a whole number of bytes, in the 4-bit types too
# Types whose scales belong to blocks of elements scale in steps only
types = st.sampled_from(sorted(set(BITS) - set(COMPUTED)))


@st.composite
def rooflines(draw):
    return Roofline(
        peak=draw(positive),
        levels={"hbm": draw(positive), "vmem": draw(positive)},
        vector=draw(st.none() | positive),
        network=draw(st.none() | positive),
    )


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


@st.composite
def sending(draw):
    """Return a kernel with every kind of work and traffic."""
    return Work(
        "any",
        {"x": draw(positive)},
        {"y": draw(positive)},
        matrix_flops=draw(st.floats(1e-3, 1e18) | st.just(0)),
        vector_flops=draw(positive),
        others={"vmem": draw(positive), "network": draw(positive)},
    )


# --- the model ------------------------------------------------------------------------------------


@given(rooflines(), intensities)
def test_attainable_is_never_above_a_ceiling_and_touches_one(roof, intensity):
    attainable = roof.attainable(intensity)
    slope = roof.bandwidth * intensity
    assert attainable <= roof.peak
    assert attainable <= slope * (1 + 1e-12)
    assert attainable == roof.peak or attainable == slope
    assert type(attainable) is float
    assert type(roof.bound(intensity)) is str


@given(rooflines())
def test_both_ceilings_meet_at_the_ridge(roof):
    assert roof.attainable(roof.ridge) == roof.peak
    assert roof.bound(roof.ridge) == "compute"
    assert roof.bound(roof.ridge * (1 - 1e-9)) == "memory"
    for level, bandwidth in roof.levels.items():
        assert bandwidth * roof.ridge_at(level) == pytest.approx(roof.peak, rel=1e-12)


@given(rooflines(), sending())
def test_times_bound_each_other(roof, job):
    times = roof.times(job)
    assert roof.time(job) == max(times.values())
    assert roof.time(job, overlap=False) == pytest.approx(sum(times.values()), rel=1e-12)
    assert roof.time(job) <= roof.time(job, overlap=False)
    assert roof.time(job, overlap=False) <= len(times) * roof.time(job) * (1 + 1e-12)
    assert times[roof.limit(job)] == roof.time(job)


@given(rooflines(), sending())
def test_a_kernel_is_held_against_every_ceiling(roof, job):
    attainable = roof.attainable(job)
    assert attainable == pytest.approx(min(roof.peak, job.flops / roof.time(job)))
    if job.matrix_flops:
        assert attainable * job.matrix_flops / job.flops <= roof.peak * (1 + 1e-12)
    if roof.vector:
        assert attainable * job.vector_flops / job.flops <= roof.vector * (1 + 1e-12)
    for level, nbytes in job.traffic.items():
        if level in roof.levels:
            assert attainable / job.flops * nbytes <= roof.levels[level] * (1 + 1e-12)


@given(rooflines(), sending(), sending())
def test_kernels_one_after_another_take_the_sum_and_more_than_the_total(roof, first, second):
    assert roof.time(first, second) == pytest.approx(
        roof.time(first) + roof.time(second), rel=1e-12
    )
    assert roof.time(total(first, second)) <= roof.time(first, second) * (1 + 1e-12)


@given(rooflines(), sizes)
def test_a_vector_ceiling_holds_vector_work_and_leaves_matrix_work(roof, n):
    job = work.gelu(n)
    ceiling = roof.vector or roof.peak
    assert roof.attainable(job) <= ceiling * (1 + 1e-12)
    assert roof.attainable(job) <= roof.bandwidth * job.intensity * (1 + 1e-12)
    assert "vector" not in roof.times(work.matmul(n, n, n))


@given(rooflines(), st.lists(intensities, min_size=1, max_size=5))
def test_arrays_of_intensities_agree_with_numbers(roof, many):
    assert roof.attainable(many).tolist() == [roof.attainable(intensity) for intensity in many]
    assert roof.bound(many).tolist() == [roof.bound(intensity) for intensity in many]


@given(rooflines(), st.lists(sizes, min_size=1, max_size=4))
def test_arrays_of_kernels_agree_with_single_ones(roof, many):
    jobs = [work.matmul(n, 64, 32, tile=(16, 16)) for n in many]
    array = work.matmul(np.array(many), 64, 32, tile=(16, 16))
    for ask in (
        roof.limit,
        roof.bound,
        roof.time,
        operator.attrgetter("flops"),
        operator.attrgetter("bytes"),
    ):
        assert ask(array).tolist() == [ask(job) for job in jobs]


# --- counts ---------------------------------------------------------------------------------------


@given(sizes, sizes, sizes)
def test_intensity_is_below_every_dimension_and_nears_the_least(m, n, k):
    job = work.matmul(m, n, k, "bf16")
    assert job.intensity < min(m, n, k)
    assert job.intensity >= min(m, n, k) / 3 * (1 - 1e-12)
    tall = work.matmul(m, 10**9, 10**9, "bf16")
    assert m * (1 - 1e-5) < tall.intensity < m


@given(even, even, sizes)
def test_counts_are_linear_in_rows_and_batch(rows, columns, n):
    for op in (work.softmax, work.reduction):
        assert op(n * rows, columns).flops == n * op(rows, columns).flops
        assert op(n * rows, columns).bytes == n * op(rows, columns).bytes
    assert work.layernorm(n * rows, columns).flops == n * work.layernorm(rows, columns).flops
    batch = work.matmul(rows, columns, 3, batch=n)
    assert batch.bytes == n * work.matmul(rows, columns, 3).bytes


@given(sizes, sizes, sizes, sizes, sizes)
def test_tiles_never_save_bytes_and_one_tile_costs_none(m, n, k, rows, columns):
    whole = work.matmul(m, n, k)
    tiled = work.matmul(m, n, k, tile=(rows, columns))
    assert tiled.bytes >= whole.bytes
    assert tiled.flops == whole.flops
    assert work.matmul(m, n, k, tile=(m, n)).bytes == whole.bytes
    assert (tiled.bytes == whole.bytes) == (rows >= m and columns >= n)


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
