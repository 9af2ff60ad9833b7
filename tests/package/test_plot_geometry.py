"""Boxes and segments, held against points that are tried one by one."""

from __future__ import annotations

import itertools

import numpy as np

from roofline_helpers.plot import geometry

RNG = np.random.default_rng(0)


def boxes(count: int) -> geometry.Pixels:
    low, size = RNG.uniform(0, 10, (count, 2)), RNG.uniform(0.5, 4, (count, 2))
    return np.hstack([low, low + size])


def inside(spots: geometry.Pixels, box: geometry.Pixels) -> bool:
    return bool(((box[:2] < spots) & (spots < box[2:])).all(axis=1).any())


def test_segments_that_pass_through_boxes() -> None:
    segments, areas = RNG.uniform(0, 12, (60, 4)), boxes(20)
    hit = geometry.hits(segments, areas)
    steps = np.linspace(0, 1, 4001)[:, None]
    for (i, segment), (j, box) in itertools.product(enumerate(segments), enumerate(areas)):
        spots = segment[:2] + steps * (segment[2:] - segment[:2])
        assert hit[i, j] == inside(spots, box), (segment, box)
    assert geometry.crossings(segments, areas).tolist() == hit.sum(axis=0).tolist()
    assert 0.05 < hit.mean() < 0.95


def test_segments_that_cross() -> None:
    a, b = np.array([[0.0, 0, 2, 2], [0, 0, 1, 1]]), np.array([[0.0, 2, 2, 0], [3, 0, 3, 9]])
    assert geometry.segments_cross(a, b).tolist() == [[True, False], [False, False]]
    assert not geometry.segments_cross(np.array([[np.nan] * 4]), b).any()


def test_boxes_that_touch_and_how_far_a_point_is() -> None:
    areas = boxes(30)
    for (i, one), (j, two) in itertools.product(enumerate(areas), enumerate(areas)):
        apart = np.any(one[:2] >= two[2:]) or np.any(two[:2] >= one[2:])
        assert geometry.touches(areas, areas)[i, j] == (not apart)
    assert geometry.distances(np.array([[0.0, 0, 1, 1]] * 2), np.array([4.0, 5.0])).tolist() == [
        5,
        5,
    ]
    assert geometry.distances(np.array([[0.0, 0, 1, 1]]), np.array([0.5, 0.5])).tolist() == [0]


def test_turned_boxes_meet_where_their_corners_say() -> None:
    square = np.array([[-1.0, -1], [1, -1], [1, 1], [-1, 1]])
    turned = square @ np.array([[1.0, 1], [-1, 1]]) / np.sqrt(2)  # by 45 degrees: 1.41 wide
    assert geometry.meet(square, turned + [2.3, 0])
    assert not geometry.meet(square, turned + [2.5, 0])
    assert not geometry.meet(square, turned + [1.8, 1.8])  # their upright outlines do meet
    tiles = geometry.upright_boxes(np.array([[0.0, 0], [8, 8], [7, 9], [-1, 1]]))
    assert len(tiles) == 8
    assert all(box[2] - box[0] <= 2 + 1e-9 for box in tiles)


def test_names_are_spread_in_order_and_as_little_as_needed() -> None:
    for count in (1, 2, 7):
        wanted = RNG.uniform(0, 10, count)
        placed = geometry.spread(wanted, 1.0, -5, 20)
        order = np.argsort(wanted, kind="stable")
        assert np.all(np.diff(placed[order]) >= 1 - 1e-9)
        assert np.isclose(placed.mean(), wanted.mean())
    assert geometry.spread(np.array([3.0, 7.0]), 1.0, 0, 10).tolist() == [3, 7]
    assert geometry.spread(np.array([9.9, 9.95]), 1.0, 0, 10).tolist() == [9, 10]
