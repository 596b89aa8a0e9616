#!/usr/bin/env python3
"""Times MPI's collectives over OpenRNIC beside MPI's own TCP, on this machine.

Open MPI runs tests/apps/collective_times.c, which checks every result, in turns over the kernel's TCP (its `tcp`
module) and over RDMA (UCX, without shared memory) with each transport. All ranks are on this machine, so packets cross
no wire: the numbers are those of the software. With fewer processors than ranks they include the scheduler's.

    tools/beside_tcp.py --rnic target/release/rnic [--ranks 4] [--turns 5] [--loss 1%] [TRANSPORT ...]
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parent.parent / "tests/apps/collective_times.c"
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe"]
TCP = [*MPIRUN, "--mca", "pml", "ob1", "--mca", "btl", "self,tcp"]
UCX = [*MPIRUN, "--mca", "pml", "ucx", "--mca", "btl", "^openib,vader,tcp", "--mca", "osc", "^rdma"]
# Open MPI polls UCX a hundred times before it yields the processor, which delays ranks that share it.
UCX += ["--mca", "opal_common_ucx_progress_iterations", "1"]


def times(command):
    """Runs `command`; returns the microseconds that it prints, by operation and bytes."""
    environment = {**os.environ, "UCX_TLS": "rc_verbs,ud_verbs,self"}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    except FileNotFoundError:
        raise SystemExit(f"{command[0]} is not installed; on Debian: apt-get install openmpi-bin libopenmpi-dev")
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed: {(done.stderr or done.stdout).strip()[-500:]}")
    lines = [line.split() for line in done.stdout.splitlines() if line.count(" ") == 2]
    return {(name, int(size)): float(micros) for name, size, micros in lines}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rnic", required=True, type=lambda path: str(pathlib.Path(path).resolve()))
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--loss", help="share of packets that OpenRNIC drops; the kernel's TCP loses none")
    parser.add_argument("transports", nargs="*", default=["falcon", "irn"], metavar="TRANSPORT")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        program = f"{folder}/collective_times"
        times_of = {name: [] for name in ["tcp", *arguments.transports]}
        try:
            subprocess.run(["mpicc", "-O2", "-o", program, SOURCE], check=True)
        except FileNotFoundError:
            raise SystemExit("mpicc is not installed; on Debian: apt-get install openmpi-bin libopenmpi-dev")
        end = ["-n", str(arguments.ranks), program]
        for _ in range(arguments.turns):
            times_of["tcp"].append(times([*TCP, *end]))
            for name in arguments.transports:
                loss = ["--loss", arguments.loss] if arguments.loss else []
                run = [arguments.rnic, "run", "--quiet", "--transport", name, *loss, "--"]
                times_of[name].append(times([*run, *UCX, *end]))
    print(f"median microseconds of {arguments.turns} turns, {arguments.ranks} ranks on {os.cpu_count()} processors\n")
    rivals = "".join(f"{name:>12}{'tcp by it':>12}" for name in arguments.transports)
    print(f"{'operation':12}{'bytes':>10}{'tcp':>12}{rivals}")
    for cell in times_of["tcp"][0]:
        medians = {name: statistics.median(turn[cell] for turn in turns) for name, turns in times_of.items()}
        tcp = medians.pop("tcp")
        line = "".join(f"{value:12.1f}{tcp / value:12.2f}" for value in medians.values())
        print(f"{cell[0]:12}{cell[1]:10}{tcp:12.1f}{line}")


if __name__ == "__main__":
    main()
