#!/usr/bin/env python3
"""Times live migrations of QEMU over OpenRNIC beside its own TCP, on this machine.

A guest whose memory holds random bytes, and which does not run, moves from one QEMU process to another: in turns by
`migrate tcp:` over the kernel, and by `migrate rdma:` over OpenRNIC with each transport.

    tools/migrate_beside_tcp.py --rnic target/release/rnic [--megabytes 400] [--turns 5] [--loss 1%] [TRANSPORT ...]
"""

import argparse
import os
import pathlib
import re
import socket
import statistics
import subprocess
import tempfile
import time

QEMU = ["qemu-system-x86_64", "-machine", "pc", "-accel", "tcg", "-display", "none", "-nodefaults", "-S"]
PROMPT = b"(qemu) "
PATIENCE_SECONDS = 60


class Guest:
    """A QEMU process and its monitor."""

    def __init__(self, prefix, folder, name, options):
        path = f"{folder}/{name}"
        command = [*prefix, *QEMU, *options, "-monitor", f"unix:{path},server,nowait"]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.monitor = socket.socket(socket.AF_UNIX)
        self.monitor.settimeout(PATIENCE_SECONDS)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self.monitor.connect_ex(path) != 0:
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise SystemExit(f"{' '.join(command)} did not start")
            time.sleep(0.02)
        self._answer()

    def _answer(self):
        said = b""
        while not said.endswith(PROMPT):
            said += self.monitor.recv(1 << 16)
        return said.decode()

    def ask(self, command):
        self.monitor.sendall(command.encode() + b"\n")
        return self._answer()

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.monitor.close()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def migrate(prefix, kind, megabytes, folder):
    """Moves a guest; returns the milliseconds of the whole migration, as QEMU reports them."""
    size = ["-m", str(megabytes + 64)]
    memory = f"loader,file={folder}/memory,addr=0x1000000,force-raw=on"
    guests = [Guest(prefix, folder, "target", [*size, "-incoming", "defer"])]
    try:
        guests.append(Guest(prefix, folder, "source", [*size, "-device", memory]))
        target, source = guests
        where = f"{kind}:127.0.0.1:{free_port()}"
        source.ask("migrate_set_parameter max-bandwidth 100G")
        target.ask(f"migrate_incoming {where}")
        source.ask(f"migrate -d {where}")
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not (status := re.search(r"Migration status: (completed|failed)", said := source.ask("info migrate"))):
            if time.monotonic() > deadline:
                raise SystemExit(f"{where}: no end after {PATIENCE_SECONDS} s: {said.strip()}")
            time.sleep(0.02)
        if status[1] == "failed":
            raise SystemExit(f"{where}: {said.strip()}")
        return float(re.search(r"total time: (\d+)", said)[1])
    finally:
        for guest in guests:
            guest.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rnic", required=True, type=lambda path: str(pathlib.Path(path).resolve()))
    parser.add_argument("--megabytes", type=int, default=400)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--loss", help="share of packets that OpenRNIC drops; the kernel's TCP loses none")
    parser.add_argument("transports", nargs="*", default=["falcon", "irn"], metavar="TRANSPORT")
    arguments = parser.parse_args()
    loss = ["--loss", arguments.loss] if arguments.loss else []
    run = [arguments.rnic, "run", "--quiet", *loss, "--transport"]
    ways = {"tcp": ([], "tcp"), **{name: ([*run, name, "--"], "rdma") for name in arguments.transports}}
    times = {name: [] for name in ways}
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/memory", "wb") as memory:
            memory.write(os.urandom(arguments.megabytes << 20))
        try:
            for _ in range(arguments.turns):
                for name, (prefix, kind) in ways.items():
                    times[name].append(migrate(prefix, kind, arguments.megabytes, folder))
        except FileNotFoundError as missing:
            raise SystemExit(f"{missing.filename} is not installed; on Debian: apt-get install qemu-system-x86")
    print(f"median of {arguments.turns} turns, {arguments.megabytes} MiB, {os.cpu_count()} processors")
    tcp = statistics.median(times["tcp"])
    for name, all_of_it in times.items():
        median = statistics.median(all_of_it)
        gbps = arguments.megabytes * (1 << 20) * 8 / median / 1e6
        print(f"{name:10} {median:7.0f} ms {gbps:6.1f} Gbit/s, tcp by it {tcp / median:.2f}")


if __name__ == "__main__":
    main()
