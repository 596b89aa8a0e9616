#!/usr/bin/env python3
"""Times `rnic sim` beside csg-htsim's `htsim_roce`, by user time, in the same scenario.

Every host sends to one other, with RoCE and PFC, in fat-trees of 128, 1024 and 8192 hosts: the scenario of
experiments/cross/permutation, whose results agree. Both run in turns on one processor; the least user time of each
counts. csg-htsim's is built as docs/cross-checks.md says.

    tools/beside_htsim.py --htsim sim/datacenter/htsim_roce --rnic target/release/rnic [--turns 3] [PORTS ...]
"""

import argparse
import json
import pathlib
import random
import resource
import subprocess
import tempfile

PACKET = 4096
HTSIM = "-linkspeed 100000 -mtu 4096 -strat ecmp_host -paths 128 -end 100000 -q 1000 -queue_type lossless_input"
HTSIM += " -pfc_thresholds 13 15 -seed 1"
PLAN = """mtu = 4096
topology = {{ kind = "fat-tree", k = {ports} }}
links = {{ rate = "100Gbps", delay = "1us" }}
switch = {{ model = "input-queued", buffer = "150KB", pfc = {{ threshold = "61440B" }} }}
transport = {{ name = "roce-gbn", ack_every_packets = 1, rto = "0" }}
workload = {{ kind = "trace", format = "htsim", file = "permutation.cm" }}
"""


def permutation(hosts, packets):
    """Returns csg-htsim's connection matrix in which each host sends to one other."""
    shuffled = list(range(hosts))
    random.Random(hosts).shuffle(shuffled)
    pairs = zip(shuffled, shuffled[1:] + shuffled[:1])
    lines = [f"{source}->{target} start 0 size {packets * PACKET}" for source, target in pairs]
    return "\n".join([f"Nodes {hosts}", f"Connections {hosts}", *lines, ""])


def user_seconds(command, folder):
    """Runs `command`; returns its user time and its output."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed: {(done.stderr or done.stdout).strip()[-300:]}")
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before, done.stdout


def measure(arguments, ports, folder):
    """Prints the times of both programs in a fat-tree of switches with `ports` ports."""
    hosts = ports**3 // 4
    packets = max(128_000 // hosts * 2, 100)
    (folder / "permutation.cm").write_text(permutation(hosts, packets))
    (folder / "plan.toml").write_text(PLAN.format(ports=ports))
    ours = [arguments.rnic, "sim", "plan.toml", "--json"]
    theirs = [arguments.htsim, "-tm", "permutation.cm", "-nodes", str(hosts), *HTSIM.split()]
    times = ([], [])
    for _ in range(arguments.turns):
        for command, seconds in zip((ours, theirs), times):
            seconds.append(user_seconds(command, folder))
    report = json.loads(times[0][0][1])
    assert report["messages"] == hosts, f"{report['messages']} of {hosts} flows ended"
    mine, other = (min(seconds for seconds, _ in turns) for turns in times)
    hops = report["packet_hops"] / 1e6
    print(
        f"{hosts:6} hosts, {packets} packets each: rnic {mine:.2f} s ({hops / mine:.1f} million packet-hops a second), "
        f"htsim_roce {other:.2f} s, {other / mine:.1f} times as long",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--htsim", required=True, type=lambda path: str(pathlib.Path(path).resolve()))
    parser.add_argument("--rnic", required=True, type=lambda path: str(pathlib.Path(path).resolve()))
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("ports", nargs="*", type=int, default=[8, 16, 32], help="ports of a switch")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for ports in arguments.ports:
            measure(arguments, ports, pathlib.Path(folder))


if __name__ == "__main__":
    main()
