#!/usr/bin/env python3
"""Runs simulations of `rnic reproduce` on the machines of a Dask cluster.

Reads one run a line (JSON, as `rnic reproduce --write-runs` writes them) and writes one sample a line, in the order in
which they finish. Every machine needs the same `rnic` (it refuses runs of another build); nothing else is shared, a
line holds all that a run needs.

  dask scheduler                                        on one machine
  dask worker tcp://HOST:8786 --nworkers 16 --nthreads 1   on each, a worker a processor
  rnic reproduce irn --dask tcp://HOST:8786             calls this script, shows progress, keeps what comes

Without Dask, `--local N` runs N at once on this machine.
"""

import argparse
import concurrent.futures
import subprocess
import sys


def run(rnic, line):
    """One run: a process that reads a line and writes a line."""
    done = subprocess.run([rnic, "reproduce", "--run-lines"], input=line, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{rnic}: {done.stderr.strip() or f'exit code {done.returncode}'}")
    return done.stdout.strip()


def on_dask(scheduler, rnic, lines):
    """Samples as they come from the cluster."""
    try:
        import distributed
    except ImportError:
        sys.exit("reproduce_dask: needs Dask (Debian: python3-distributed); without it, --local N")
    with distributed.Client(scheduler) as client:
        # A machine that dies takes its runs with it; they are run again elsewhere, with the same result.
        futures = client.map(run, [rnic] * len(lines), lines, retries=RETRIES, pure=False)
        for future in distributed.as_completed(futures):
            yield future.result()


def on_this_machine(jobs, rnic, lines):
    """Samples as they come from processes here."""
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        futures = [pool.submit(run, rnic, line) for line in lines]
        for future in concurrent.futures.as_completed(futures):
            yield future.result()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--scheduler", metavar="ADDRESS", help="the cluster's scheduler, tcp://HOST:8786")
    where.add_argument("--local", metavar="N", type=int, help="so many at once on this machine, without Dask")
    parser.add_argument("--rnic", default="rnic", help="the command, as the workers find it (rnic)")
    parser.add_argument("runs", nargs="?", type=argparse.FileType(), default=sys.stdin, help="lines of runs (stdin)")
    args = parser.parse_args()
    lines = [line for line in args.runs if line.strip()]
    samples = on_dask(args.scheduler, args.rnic, lines) if args.scheduler else on_this_machine(args.local, args.rnic, lines)
    try:
        for sample in samples:
            print(sample, flush=True)
    except (OSError, RuntimeError) as error:
        sys.exit(f"reproduce_dask: {error}")


RETRIES = 2

if __name__ == "__main__":
    main()
