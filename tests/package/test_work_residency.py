"""What stays on the chip between two kernels: by hand, at the ends, and against the compiler."""

import roofline_helpers as rh
from roofline import evidence as files
from roofline_helpers import Work
from roofline_helpers.work import flash_attention, fuse, naive_attention, resident

# x → f → t → g → y, and h reads x and t once more
CHAIN = (
    Work("f", {"x": 10}, {"t": 4}, vector_flops=1),
    Work("g", {"t": 4, "W": 7}, {"y": 5}, vector_flops=1),
    Work("h", {"t": 4, "x": 10}, {"z": 3}, vector_flops=1),
)


def moved(*kernels):
    return [float(kernel.bytes) for kernel in kernels]


def test_what_fits_between_kernels_moves_once_or_not_at_all():
    assert moved(*CHAIN) == [14, 16, 17]
    # t: made inside, never in memory. x: read once from there. y, z leave; W is read once
    assert moved(*resident(*CHAIN, capacity=14)) == [10, 12, 3]
    assert [dict(k.others) for k in resident(*CHAIN, capacity=14)] == [
        {"vmem": 4},
        {"vmem": 4},
        {"vmem": 14},
    ]


def test_the_smallest_get_a_place_first_and_whole():
    assert moved(*resident(*CHAIN, capacity=13)) == [10, 12, 13]  # t, and no room for x as well
    assert moved(*resident(*CHAIN, capacity=4)) == [10, 12, 13]
    assert moved(*resident(*CHAIN, capacity=3)) == moved(*CHAIN)
    assert resident(*CHAIN, capacity=0) == CHAIN


def test_what_is_needed_later_stays_and_weights_travel():
    assert moved(*resident(*CHAIN, capacity=14, travels=["x"])) == [10, 12, 13]
    assert moved(*resident(*CHAIN, capacity=14, onward=["z"])) == [10, 12, 10]  # z took x's place
    assert moved(*resident(*CHAIN, capacity=17, onward=["z"])) == [10, 12, 0]


def test_a_part_keeps_the_whole_and_passes_are_saved_with_it():
    made = Work("made", {"x": 10}, {"t": 8})
    used = Work("used", {"t": 5, "w": 7}, {"y": 3}, passes={"t": 3, "w": 2}, others={"l2": 1})
    assert resident(made, used, capacity=7) == (made, used)
    first, second = resident(made, used, capacity=8, level="l2")
    assert (first.bytes, second.bytes) == (10, 2 * 7 + 3)
    assert (dict(first.others), dict(second.others)) == ({"l2": 8}, {"l2": 1 + 3 * 5})
    assert dict(second.passes) == {"w": 2}


def test_the_lower_end_is_at_least_what_one_kernel_would_move():
    for length in (64, 512, 3000):
        three = naive_attention(4, length, heads=32, head_dim=64)
        ends = [sum(moved(*resident(*three, capacity=c))) for c in (0, 2**25, 2**27, 1e18)]
        assert ends == sorted(ends, reverse=True)
        assert ends[0] == sum(moved(*three))
        assert ends[-1] == fuse(*three).bytes


def test_the_ends_hold_what_the_compiler_placed():
    """Attention in plain JAX, compiled length by length: HBM bytes lie between both ends.

    Where nothing fits the compiler, which fuses too, moves less than three kernels by hand.
    """
    record = files.load("residency")
    heads, head_dim, batch = (record["shape"][name] for name in ("heads", "head_dim", "batch"))
    on_least, seen = {}, 0
    for key, by_length in record["hbm_bytes"].items():
        device = rh.chip(key).per_device()
        _, capacity = device.on_chip
        for length, compiled in by_length.items():
            three = naive_attention(batch, int(length), heads=heads, head_dim=head_dim)
            least = flash_attention(batch, int(length), heads=heads, head_dim=head_dim).bytes
            everything = sum(moved(*three))
            stays = sum(moved(*resident(*three, capacity=capacity)))
            assert least <= compiled <= everything, (key, length)
            assert stays == everything or least <= stays <= compiled, (key, length)
            if compiled == least:
                on_least[key] = int(length)
            seen += 1
    assert seen >= 30
    # Where one kernel's bytes are all there are: the roof does not double at 128 tokens
    assert on_least == {"v4": 512, "v5e": 512, "v6e": 384, "v7x": 128}  # never on two-core v5p
