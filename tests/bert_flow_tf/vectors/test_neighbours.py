"""Nearest rows, and groups of rows that are near each other."""

import numpy as np

from bert_flow_tf.vectors.neighbours import chains, nearest_rows, numbered_by_size, similar_groups


def of_norm_1(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_nearest_rows_are_those_of_the_largest_cosines():
    rng = np.random.default_rng(0)
    queries, corpus = rng.normal(size=(2, 5)), rng.normal(size=(9, 5))
    cosines = of_norm_1(queries) @ of_norm_1(corpus).T
    for (found, rows), expected in zip(nearest_rows(queries, corpus, 3), cosines, strict=True):
        assert rows.tolist() == np.argsort(-expected)[:3].tolist()
        np.testing.assert_allclose(found, expected[rows], atol=1e-12)
    assert [len(rows) for _, rows in nearest_rows(queries, corpus, 99)] == [9, 9]


def test_groups_are_numbered_by_size_and_single_rows_are_0():
    assert numbered_by_size(np.array([4, 2, 2, 7, 4, 2])).tolist() == [2, 1, 1, 0, 2, 1]


def test_a_chain_is_a_group_of_unlike_ends():
    angles = np.deg2rad([0, 20, 40, 60, 80, 180, 181, 182])
    u = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    threshold = np.cos(np.deg2rad(25))
    groups, _ = similar_groups(u, threshold)
    assert numbered_by_size(groups).tolist() == [1, 1, 1, 1, 1, 2, 2, 2]
    found = chains(u, groups, threshold)
    assert found.count == 1
    np.testing.assert_allclose(found.least_cosine, np.cos(np.deg2rad(80)))


def test_groups_are_those_of_all_cosines():
    rng = np.random.default_rng(0)
    u = rng.normal(size=(700, 6))
    u /= np.linalg.norm(u, axis=1, keepdims=True)
    groups, nearest = similar_groups(u, 0.97)
    cosines = u @ u.T - 3 * np.eye(len(u))
    np.testing.assert_allclose(nearest, cosines.max(axis=1), rtol=1e-5)
    # Walk from row to row as long as a cosine is large.
    reached, left = np.full(len(u), -1), set(range(len(u)))
    while left:
        todo = [start := min(left)]
        while todo:
            if (row := todo.pop()) in left:
                left.remove(row)
                reached[row] = start
                todo += np.flatnonzero(cosines[row] >= 0.97).tolist()
    assert (
        len(set(zip(groups, reached, strict=True))) == len(set(groups)) == len(set(reached)) < 700
    )
