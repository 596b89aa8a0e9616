#!/usr/bin/env python3
"""Mutants of a module written by hand: single faults that a test must notice.

  tools/rtl/mutate.py rtl/shell/header_decode.sv -- cargo test -q -p rnic-rtl --test shell

Each mutant changes one operator, one constant or one condition; the file is changed in place, the command is run, and
the file is restored. A mutant is killed when the command fails, be it by a lint. Those that live are listed: each is a
gap of the tests, or the same circuit. `--list` shows mutants without running any; `--sample N --seed S` runs some.
"""

import argparse
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

# What is replaced, and by what. Only one place is changed in each mutant.
FAULTS = [
    (r"==(?!=)", ["!="]),
    (r"!=(?!=)", ["=="]),
    (r"(?<![<>=!])>=", [">"]),
    (r"(?<=[\w)\]] )>(?= [\w(])", [">=", "<"]),
    (r"(?<=[\w)\]] )<(?= [\w(])", ["<=", ">"]),
    (r"(?<![&])&(?![&])", ["|"]),
    (r"(?<![|])\|(?![|])", ["&"]),
    (r"&&", ["||"]),
    (r"\|\|", ["&&"]),
    (r"\^", ["|"]),
    (r"(?<=[\w)\]] )\+(?= [\w(])", ["-"]),
    (r"(?<=[\w)\]] )-(?= [\w(])", ["+"]),
    (r"~(?=[\w(])", [""]),
    (r"!(?=[\w(])", [""]),
    (r"\b(\d+)'d(\d+)\b", [lambda m: f"{m.group(1)}'d{(int(m.group(2)) + 1) % 2 ** int(m.group(1))}"]),
    (r"\b1'b1\b", ["1'b0"]),
    (r"\b1'b0\b", ["1'b1"]),
    (r"\bif \(([^()]*(?:\([^()]*\)[^()]*)*)\)", [lambda m: f"if (!({m.group(1)}))"]),
    (r"(?<=\? )([^:?;]+?)( : )([^:?;,)]+)", [lambda m: f"{m.group(3)}{m.group(2)}{m.group(1)}"]),
]
# Widths, ranges and parameters are not faults of logic: they do not compile, or change everything.
SKIPPED = re.compile(r"^\s*(//|localparam|parameter|input|output|inout|logic|module|package|import|typedef|for \()")
COMMENT = re.compile(r"//.*$")


def mutants(text):
    """All mutants: line number, the line before, the line after, and the whole text."""
    lines, found = text.split("\n"), []
    for number, line in enumerate(lines):
        if SKIPPED.match(line):
            continue
        code = COMMENT.sub("", line)
        for pattern, faults in FAULTS:
            for match in re.finditer(pattern, code):
                if is_in_index(code, match.start()):
                    continue
                for fault in faults:
                    changed = code[:match.start()] + (fault(match) if callable(fault) else fault) + code[match.end():]
                    if changed != code:
                        found.append((number + 1, line, changed, "\n".join([*lines[:number], changed, *lines[number + 1:]])))
    return found


def is_in_index(code, at):
    """Whether a position is inside of brackets: a range, or an index."""
    return code.count("[", 0, at) > code.count("]", 0, at)


def main():
    """Runs the command with each mutant."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--sample", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=int, default=600, help="a run that takes longer kills the mutant")
    parser.add_argument("command", nargs="*")
    options = parser.parse_args()
    original = options.file.read_text()
    chosen = mutants(original)
    if options.sample is not None and options.sample < len(chosen):
        chosen = sorted(random.Random(options.seed).sample(chosen, options.sample), key=lambda mutant: mutant[0])
    if options.list:
        for number, before, after, _ in chosen:
            print(f"{options.file}:{number}: {before.strip()}\n    -> {after.strip()}")
        return
    if not options.command:
        parser.error("a command is needed: mutate.py FILE -- cargo test -p rnic-rtl --test NAME")
    # An interrupted run restores the file too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    if subprocess.run(options.command, check=False, capture_output=True).returncode != 0:
        sys.exit("mutate: the command fails without any mutant")
    alive = []
    try:
        for number, before, after, text in chosen:
            started = time.monotonic()
            options.file.write_text(text)
            try:
                code = subprocess.run(options.command, check=False, capture_output=True, timeout=options.seconds).returncode
            except subprocess.TimeoutExpired:
                code = 1
            print(f"{options.file}:{number}: {'lives' if code == 0 else 'killed'} after "
                  f"{time.monotonic() - started:.0f} s: {before.strip()} -> {after.strip()}", flush=True)
            if code == 0:
                alive.append(number)
    finally:
        options.file.write_text(original)
    print(f"{len(chosen) - len(alive)} of {len(chosen)} mutants killed")
    sys.exit(1 if alive else 0)


if __name__ == "__main__":
    main()
