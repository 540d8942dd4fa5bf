"""The floor's count of operations."""

from benchmarks.floor import Layers


def test_operations_are_those_of_the_products_and_of_attention():
    layers = Layers(number=6, width=384, inner=1536)
    tokens = 17
    products = sum(2 * m * k * n for m, k, n in layers.products(tokens))
    # 12 heads of 32: each multiplies [17, 32] by [32, 17], and [17, 17] by [17, 32].
    attention = 12 * (2 * tokens * 32 * tokens + 2 * tokens * tokens * 32)
    assert layers.operations([tokens]) == 6 * (products + attention)
    assert layers.operations([3, tokens]) == layers.operations([3]) + layers.operations([tokens])
