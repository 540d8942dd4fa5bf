"""Simulates bulk embedding by workers that die, and prints what is lost and repeated, by rows of a shard.

    python -m benchmarks.scale_failures --rate 700 --workers 3200

Every worker embeds one shard after the other. It dies at a random time, at the same rate at every moment; its shard
goes back, and another worker takes its place after --load seconds. A shard whose workers died three times is given up.
"""

import argparse
import heapq
import math
import sys
from collections.abc import Sequence

import numpy as np

SHARD_ROWS = (1_024, 4_096, 16_384, 65_536, 262_144, 1_048_576)
# Those of `bert_flow_tf.scale.on_ray`, and of a record in the manifest.
ATTEMPTS, RECORD_BYTES = 3, 240


def simulate(
    sentences: int, rows: int, workers: int, rate: float, deaths_per_hour: float, load: float, seed: int
) -> dict[str, float]:
    """dict of `shards`, `deaths`, `repeated` sentences, shards `given_up` and `hours` to the last shard's end.

    Args:
      sentences: in all.
      rows: of a shard.
      workers: at any time.
      rate: sentences that a worker embeds in a second.
      deaths_per_hour: of a worker.
      load: seconds from a worker's death until another has loaded the model.
      seed: of the deaths.
    """
    shards = math.ceil(sentences / rows)
    waiting = [(rows, 0)] * shards
    waiting[-1] = sentences - rows * (shards - 1), 0
    generator = np.random.default_rng(seed)
    lifetimes = iter(())
    free = [load] * workers
    ends_at = deaths = repeated = given_up = 0.0
    while waiting:
        size, failures = waiting.pop()
        begun = heapq.heappop(free)
        lifetime = next(lifetimes, None)
        if lifetime is None:
            # Without a memory, a worker is as good as new at every shard.
            lifetimes = iter(generator.exponential(3600 / deaths_per_hour, 1 << 16))
            lifetime = next(lifetimes)
        if lifetime < size / rate:
            deaths += 1
            repeated += lifetime * rate
            if failures + 1 < ATTEMPTS:
                waiting.append((size, failures + 1))
            else:
                given_up += 1
            heapq.heappush(free, begun + lifetime + load)
            continue
        ends_at = max(ends_at, begun + size / rate)
        heapq.heappush(free, begun + size / rate)
    return {
        "shards": shards,
        "deaths": deaths,
        "repeated": repeated,
        "given_up": given_up,
        "hours": ends_at / 3600,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sentences", type=int, default=10**9)
    parser.add_argument("--workers", type=int, default=3_200, help="100 machines of 32 CPUs (default: 3200)")
    parser.add_argument("--rate", type=float, required=True, help="sentences that a worker embeds in a second")
    parser.add_argument("--deaths_per_hour", type=float, default=1e-3, help="of a worker (default: 0.001)")
    parser.add_argument("--load", type=float, default=30.0, help="seconds until a worker is replaced (default: 30)")
    parser.add_argument("--seed", type=int, default=1)
    given = vars(parser.parse_args(arguments))
    ideal = given["sentences"] / given["workers"] / given["rate"] / 3600
    print(f"{given['sentences']:,} sentences, {given['workers']:,} workers, {given['rate']:g} a second each, of which")
    print(f"{given['deaths_per_hour']:g} die per hour; {ideal:.2f} hours if none did and none waited")
    print("  rows of a shard  seconds each     shards  manifest  deaths     repeated  given up  hours")
    for rows in SHARD_ROWS:
        found = simulate(rows=rows, **given)
        print(
            f"  {rows:15,} {rows / given['rate']:13.1f} {found['shards']:10,.0f} "
            f"{found['shards'] * RECORD_BYTES / 1e6:6.1f} MB {found['deaths']:7.0f} "
            f"{100 * found['repeated'] / given['sentences']:10.5f} % {found['given_up']:9.0f} {found['hours']:6.2f}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
