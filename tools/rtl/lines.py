#!/usr/bin/env python3
"""Line coverage of the circuits written by hand, as Verilator counts it.

  lines.py FOLDER     a table, module by module, of what the models in FOLDER have counted; less than 95 % is an error
  lines.py FOLDER -w  without an error, also writes rtl/coverage.json, from which report.py makes a table in docs/rtl.md

`make rtl-coverage` runs the tests and calls it. Models write one file each into the folder; `verilator_coverage` merges
them. Lines are those of always blocks and functions. One is reached when it was evaluated in some model and, if it is a
condition, was true and false. Assignments outside of blocks have no counts, and checks for simulation are not circuits.
Lines that cannot be reached are listed in tools/rtl/uncovered.toml with the reason; they count neither way.
"""

import argparse
import hashlib
import os
import re
import sys
import tomllib
from collections import defaultdict
from pathlib import Path

import tool
from table import COMMENT, ROOT, save

COVERAGE = ROOT / "rtl/coverage.json"
UNREACHABLE = Path(__file__).with_name("uncovered.toml")
LEAST = 95.0
# A point of Verilator's coverage: fields after \x01, each a name and \x02 and a value, and a count.
POINT = re.compile(r"^C '(.*)' (\d+)$")
CHECKS = re.compile(r"^`ifndef SYNTHESIS$.*?^`endif$", re.MULTILINE | re.DOTALL)
# Numbers of events and of cycles, which the tests read; `make rtl-coverage` sets them.
SETTINGS = ("RNIC_LOCKSTEP_EVENTS", "RNIC_TONIC_CYCLES")


def written():
    """The files of modules and packages written by hand, by the name that the table has."""
    files = sorted((ROOT / "rtl").glob("*/*.sv"))
    return {f"{path.parent.name}/{path.stem}": path for path in files if path.parent.name not in ("gen", "formal")}


def digest(text):
    """A hash of the text of a module without its comments."""
    return hashlib.sha256(" ".join(COMMENT.sub(" ", text).split()).encode()).hexdigest()[:16]


def numbers(ranges, line):
    """The lines of a point, such as `34,36-38`; a branch without a statement is that of its condition."""
    found = set()
    for part in filter(None, ranges.split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found or {line}


def points(text, paths):
    """How often each point of each file was reached, in all instances together, and its lines."""
    found = defaultdict(lambda: defaultdict(int))
    for line in text.splitlines():
        point = POINT.match(line)
        if point is None:
            continue
        fields = dict(field.split("\x02", 1) for field in point.group(1).split("\x01") if "\x02" in field)
        name = paths.get(Path(fields["f"]).resolve())
        if name is not None:
            # Without the hierarchy and the parameters: what one instance cannot reach, another may.
            place = (int(fields["l"]), int(fields["n"]), fields.get("o", ""), fields.get("S", ""))
            found[name][place] += int(point.group(2))
    return found


def merged(folder):
    """The counts of all models."""
    files = sorted(Path(folder).glob("*.dat"))
    if not files:
        tool.fail(f"no coverage in {folder}: make rtl-coverage")
    into = Path(folder) / "merged"
    tool.run(ROOT, "verilator_coverage", "--write", into, *files)
    return into.read_text()


def lines(counts, text):
    """The lines of a module, and those that were not reached."""
    checks = set()
    for match in CHECKS.finditer(text):
        first = text.count("\n", 0, match.start()) + 1
        checks.update(range(first, first + match.group().count("\n") + 1))
    everything, missed = set(), set()
    for (line, _, _, ranges), count in counts.items():
        own = numbers(ranges, line)
        everything |= own
        if count == 0:
            missed |= own
    return everything - checks, missed - checks


def unreachable(path=UNREACHABLE):
    """The lines that cannot be reached, with their reasons: by module, the text of each."""
    found = defaultdict(dict)
    with open(path, "rb") as file:
        for row in tomllib.load(file).get("line", []):
            found[row["module"]][row["text"]] = row["reason"]
    return found


def measured(counts, text, listed):
    """The figures of a module, its lines that were not reached and are not listed, and what is wrong with the list."""
    everything, missed = lines(counts, text)
    rows = [row.strip() for row in text.split("\n")]
    known = {number for number in missed if rows[number - 1] in listed}
    wrong = [f"uncovered.toml: no line that is not reached: {row}" for row in listed
             if row not in {rows[number - 1] for number in known}]
    left = sorted(missed - known)
    figures = {"lines": len(everything) - len(known), "reached": len(everything) - len(missed),
               "unreachable": len(known), "sources": digest(text)}
    return figures, left, wrong


def percent(figures):
    """The share of a module's lines that are reached."""
    return 100.0 * figures["reached"] / max(figures["lines"], 1)


def findings(coverage):
    """What does not agree between rtl/coverage.json and the tree."""
    if not coverage:
        return ["rtl/coverage.json is missing: make rtl-coverage"]
    modules, files, found = coverage["modules"], written(), []
    for name, figures in modules.items():
        if name not in files:
            found.append(f"{name}: in rtl/coverage.json, but not in rtl: make rtl-coverage")
        elif figures["sources"] != digest(files[name].read_text()):
            found.append(f"{name}: has changed since rtl/coverage.json: make rtl-coverage")
        if percent(figures) < LEAST:
            found.append(f"{name}: {percent(figures):.1f} % of its lines are reached, not {LEAST:.0f} %")
    found += [f"{name}: not in rtl/coverage.json: make rtl-coverage" for name, path in files.items()
              if name not in modules and has_blocks(path.read_text())]
    return found


def has_blocks(text):
    """Whether a module has more than constants and assignments."""
    return re.search(r"\balways_(ff|comb)\b", COMMENT.sub(" ", text)) is not None


def main():
    """Prints the table, and fails below the bound."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("-w", "--write", action="store_true", help="write rtl/coverage.json")
    options = parser.parse_args()
    files, listed = written(), unreachable()
    found = points(merged(options.folder), {path.resolve(): name for name, path in files.items()})
    modules, failed = {}, [f"uncovered.toml: {name} does not exist" for name in listed if name not in files]
    print(f"{'module':<26} lines reached   percent")
    for name, path in files.items():
        text = path.read_text()
        if name not in found:
            failed += [f"{name}: not simulated"] if has_blocks(text) else []
            continue
        modules[name], left, wrong = measured(found[name], text, listed.get(name, {}))
        failed += [f"{name}: {finding}" for finding in wrong]
        share = percent(modules[name])
        failed += [f"{name}: {share:.1f} %, at least {LEAST:.0f} % are required"] if share < LEAST else []
        lacks = f"   lines {', '.join(map(str, left))}" if left else ""
        print(f"{name:<26} {modules[name]['lines']:5} {modules[name]['reached']:7} {share:7.1f} %{lacks}")
    if options.write and not failed:
        save(COVERAGE, {"run": {name: int(os.environ[name]) for name in SETTINGS}, "modules": modules})
    for finding in failed:
        print(finding)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    try:
        main()
    except tool.Missing as missing:
        tool.fail(missing)
