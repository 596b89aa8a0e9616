#!/usr/bin/env python3
"""Line coverage of the circuits written by hand, as Verilator counts it.

  RNIC_RTL_COVERAGE=$PWD/out/rtl/coverage cargo test -p rnic-rtl
  tools/rtl/lines.py out/rtl/coverage

Models write one file each into the folder; `verilator_coverage` merges them. A line is covered when every point of it (a
branch of a conditional, a block) was reached in some model. A file with less than 95 % is an error, unless
tools/rtl/uncovered.toml gives a lower bound and the reason. Modules that were not simulated at all are named.
"""

import re
import sys
import tomllib
from collections import defaultdict
from pathlib import Path

import tool
from table import COMMENT, ROOT

WAIVERS = Path(__file__).with_name("uncovered.toml")
LEAST = 95.0
# A point of Verilator's coverage: fields after \x01, each a name and \x02 and a value, and a count.
POINT = re.compile(r"^C '(.*)' (\d+)$")


def points(folder):
    """How often each point of each file was reached, in all models and all instances together."""
    files = sorted(Path(folder).glob("*.dat"))
    if not files:
        tool.fail(f"no coverage in {folder}; RNIC_RTL_COVERAGE={folder} cargo test -p rnic-rtl")
    merged = Path(folder) / "merged"
    tool.run(ROOT, "verilator_coverage", "--write", merged, *files)
    found = defaultdict(lambda: defaultdict(int))
    for line in merged.read_text().splitlines():
        point = POINT.match(line)
        if point is None:
            continue
        fields = dict(field.split("\x02", 1) for field in point.group(1).split("\x01") if "\x02" in field)
        path = Path(fields["f"]).resolve()
        if path.is_relative_to(ROOT / "rtl"):
            # Without the hierarchy and the parameters: what one instance cannot reach, another may.
            place = (int(fields["l"]), int(fields["n"]), fields.get("o", ""))
            found[str(path.relative_to(ROOT))][place] += int(point.group(2))
    return found


def waivers(path=WAIVERS):
    """Lower bounds of files, with their reasons."""
    with open(path, "rb") as file:
        return {row["file"]: row for row in tomllib.load(file).get("waiver", [])}


def main():
    """Prints the percentage of each file, and fails below the bound."""
    if len(sys.argv) != 2:
        tool.fail("usage: lines.py FOLDER")
    found, bounds, failed = points(sys.argv[1]), waivers(), False
    written = [path for path in sorted((ROOT / "rtl").glob("*/*.sv")) if path.parent.name not in ("gen", "formal")]
    places = [str(path.relative_to(ROOT)) for path in written]
    for place, path in zip(places, written):
        if place not in found:
            # Constants and assignments have no points.
            if re.search(r"\balways_(ff|comb)\b", COMMENT.sub(" ", path.read_text())) and place not in bounds:
                print(f"{place}: not simulated")
                failed = True
            continue
        lines = {line for line, _, _ in found[place]}
        missed = sorted({line for (line, _, _), count in found[place].items() if count == 0})
        percent = 100.0 * (len(lines) - len(missed)) / len(lines)
        bound = bounds.get(place, {}).get("percent", LEAST)
        mark = "" if percent >= bound else f" <- at least {bound:.0f} %"
        lacks = f"; not covered: {', '.join(map(str, missed))}" if missed else ""
        failed |= percent < bound
        print(f"{place}: {percent:.1f} % of {len(lines)} lines{mark}{lacks}")
    for place in sorted(set(bounds) - set(places)):
        print(f"uncovered.toml: {place} does not exist")
        failed = True
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    try:
        main()
    except tool.Missing as missing:
        tool.fail(missing)
