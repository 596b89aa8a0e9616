#!/usr/bin/env python3
"""Writes the flows of the cross-checks (docs/cross-checks.md) as connection matrices of htsim, which both programs read.

    tools/cross_flows.py experiments/cross

Sizes are whole packets of 4096 bytes of payload, because htsim sends nothing else, or of 1068 (RoCE) and 1052 bytes
(IRN) for ns-3, which takes whole nanoseconds for a packet: 92 for 1150 bytes. The same files on every machine.
"""

import pathlib
import random
import sys

PACKET = 4096
"""Payload bytes of a packet."""
ROCE_PACKET = 1068
IRN_PACKET = 1052
"""The same in the scenarios that only ns-3 runs: 1150 bytes with the headers of each, 92 ns at 100 Gbit/s."""
LINK_GBPS = 100
# DCTCP's web search (SIGCOMM'10), as `sizes = "web-search"` of a plan: kilobytes, and the percentage of flows up to that.
WEB_SEARCH = [
    (0, 0), (10, 15), (20, 20), (30, 30), (50, 40), (80, 53), (200, 60), (1000, 70), (2000, 80), (5000, 90),
    (10000, 97), (30000, 100),
]


def matrix(nodes, flows, packet=PACKET):
    """Returns the text of a connection matrix of `flows`: source, destination, start in picoseconds, packets."""
    lines = [f"Nodes {nodes}", f"Connections {len(flows)}"]
    lines += [f"{src}->{dst} start {start} size {packets * packet}" for src, dst, start, packets in flows]
    return "\n".join(lines) + "\n"


def permutation(nodes, packets, seed):
    """Every host sends to another one and receives from another one."""
    rng = random.Random(seed)
    while True:
        targets = list(range(nodes))
        rng.shuffle(targets)
        if all(src != dst for src, dst in enumerate(targets)):
            return [(src, dst, 0, packets) for src, dst in enumerate(targets)]


def web_search_packets(rng):
    """Draws a size, uniform between two points of the distribution, in packets."""
    percent = rng.random() * 100
    for (low, below), (high, share) in zip(WEB_SEARCH, WEB_SEARCH[1:]):
        if percent <= share:
            size = 1000 * (low + (high - low) * (percent - below) / (share - below))
            return max(1, -(-int(size) // PACKET))
    raise AssertionError("the last share is 100 %")


def poisson(nodes, load, count, seed):
    """Flows of web-search sizes that arrive at random, from any host to any other."""
    rng = random.Random(seed)
    mean = sum((a + b) / 2 * 1000 * (s - r) / 100 for (a, r), (b, s) in zip(WEB_SEARCH, WEB_SEARCH[1:]))
    gap_ps = mean * 8 / (load * nodes * LINK_GBPS * 1e9) * 1e12
    flows, now = [], 0.0
    for _ in range(count):
        now += rng.expovariate(1) * gap_ps
        src, dst = rng.sample(range(nodes), 2)
        flows.append((src, dst, int(now), web_search_packets(rng)))
    return flows


def incasts(rounds, senders, packets, seed):
    """Every 3 ms random hosts of 16 send to another one, from whole nanoseconds within 5 us."""
    rng, flows = random.Random(seed), []
    for at in range(rounds):
        to, *hosts = rng.sample(range(16), senders + 1)
        flows += sorted((src, to, at * 3 * 10**9 + rng.randrange(5_000) * 1000, packets) for src in hosts)
    return sorted(flows, key=lambda flow: flow[2])


def main(root):
    """Writes all files below `root`."""
    files = {
        **{f"one-flow/{packets}.cm": matrix(16, [(0, 15, 0, packets)]) for packets in (1, 10, 100, 1000)},
        "incast/incast.cm": matrix(16, [(src, 0, 0, 100) for src in range(1, 16)]),
        "permutation/permutation.cm": matrix(128, permutation(128, 1000, 1)),
        "swift-two/two.cm": matrix(16, [(4, 0, 0, 10_000), (8, 0, 0, 10_000)]),
        "swift-incast/incast.cm": matrix(128, [(src, 0, 0, 200) for src in range(1, 61)]),
        "web-search/web-search.cm": matrix(16, poisson(16, 0.4, 1500, 1)),
        **{f"ns3-one-flow/{n}.cm": matrix(3, [(0, 2, 0, n)], ROCE_PACKET) for n in (1, 10, 100, 1000)},
        **{f"ns3-one-flow/irn-{n}.cm": matrix(3, [(0, 2, 0, n)], IRN_PACKET) for n in (1, 10, 100, 1000)},
        "ns3-dcqcn-two/two.cm": matrix(3, [(0, 2, 0, 56_000), (1, 2, 10**9, 56_000)], ROCE_PACKET),
        "ns3-incast/incast.cm": matrix(9, [(src, 8, 0, 936) for src in range(8)], ROCE_PACKET),
        "ns3-irn-incast/incasts.cm": matrix(16, incasts(8, 8, 468, 1), IRN_PACKET),
    }
    for name, text in files.items():
        path = pathlib.Path(root) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) == 2 else sys.exit(__doc__))
