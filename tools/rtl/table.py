"""The table of modules (modules.toml), the files of each, and a hash of what its figures depend on."""

import hashlib
import json
import re
import tomllib
from dataclasses import dataclass, field, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TABLE = Path(__file__).with_name("modules.toml")
PAPERS = Path(__file__).with_name("papers.toml")
# Folders that are not in the tree: what `rnic-circuits` emits.
EMITTED = ROOT / "out/rtl/emitted"

COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
WORD = re.compile(r"[A-Za-z_]\w*")
DECLARED = re.compile(r"^\s*(?:module|package)\s+(\w+)", re.MULTILINE)


@dataclass
class Module:
    """A row of the table."""

    name: str
    folders: list
    module: str = ""
    parameters: dict = field(default_factory=dict)
    # Which figures the row has beside cells and levels: "osu018", "ecp5".
    measures: list = field(default_factory=list)
    # Slow rows are not synthesised by `make rtl-report --quick` and in CI.
    slow: bool = False
    # Modules that are synthesised once each, and without `share`, which does not end in a large module: a name in
    # the table's section `parts`, replaced by the list there.
    parts: list = field(default_factory=list)
    # Whether the report names the ends of the longest path; out/rtl/work has what it passes.
    paths: bool = False
    # Bounds that are not relative to the last report: {"lut": 2500, "levels": 31, "ramb36": 0, "dsp": 0}.
    most: dict = field(default_factory=dict)
    # Section of the page.
    group: str = "other"
    # The row stands for several that differ in one parameter, or in a folder that is named by it.
    sweep: dict = field(default_factory=dict)
    # The value of that parameter.
    value: int = 0

    def __post_init__(self):
        self.module = self.module or self.name


def folder(name, emitted=EMITTED):
    """The folder `name` of `rtl`, or, when it begins with `emitted/`, of what is emitted."""
    return emitted / name.removeprefix("emitted/") if name.startswith("emitted/") else ROOT / "rtl" / name


def rows(table=TABLE):
    """All rows of the table; one with a sweep is replaced by a row for each value."""
    with open(table, "rb") as file:
        read = tomllib.load(file)
    for row in read["module"]:
        row["parts"] = read["parts"][row["parts"]] if "parts" in row else []
    found = [expanded for row in read["module"] for expanded in expand(Module(**row))]
    names = [row.name for row in found]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ValueError(f"{table.name}: rows with the same name: {', '.join(sorted(twice))}")
    return found


def expand(row):
    """The rows for which a row stands."""
    if not row.sweep:
        return [row]
    parameter, folder_of = row.sweep["parameter"], row.sweep.get("folder")

    def expanded(value):
        new = replace(row, name=f"{row.name}_{parameter.lower()}{value}", value=value)
        if folder_of is None:
            return replace(new, parameters={**row.parameters, parameter: value})
        return replace(new, folders=[*row.folders, folder_of.format(value)])

    return [expanded(value) for value in row.sweep["values"]]


def papers(path=PAPERS):
    """What papers report."""
    with open(path, "rb") as file:
        return tomllib.load(file)


def words(path):
    """The words of a source file, without comments."""
    return set(WORD.findall(COMMENT.sub(" ", path.read_text())))


def sources(row, emitted=EMITTED):
    """The files that a row needs, packages first: those that declare what is mentioned, from the row's module on."""
    declared = {}
    for name in row.folders:
        for path in sorted(folder(name, emitted).glob("*.sv")):
            for declaration in DECLARED.findall(COMMENT.sub(" ", path.read_text())):
                declared.setdefault(declaration, path)
    if row.module not in declared:
        raise FileNotFoundError(f"{row.name}: no module {row.module} in {', '.join(row.folders)}")
    found, seen = [], set()

    def visit(path):
        seen.add(path)
        needed = {declared[word] for word in words(path) if word in declared}
        for other in sorted(needed - seen):
            if other not in seen:
                visit(other)
        found.append(path)

    visit(declared[row.module])
    packages = [path for path in found if path.name.endswith("_pkg.sv")]
    return packages + [path for path in found if path not in packages]


def digest(row, emitted=EMITTED):
    """A hash of the sources and the parameters of a row, which does not depend on where the tree is."""
    how = f" {row.parts}" if row.parts else ""
    total = hashlib.sha256(f"{row.module} {sorted(row.parameters.items())}{how}\n".encode())
    for path in sources(row, emitted):
        total.update(f"{path.name}\n".encode())
        total.update(path.read_bytes())
    return total.hexdigest()[:16]


def load(path):
    """A JSON file; empty when there is none."""
    return json.loads(path.read_text()) if path.exists() else {}


def save(path, value):
    """Writes an object with one line for each member of its members."""
    parts = []
    for name, member in value.items():
        lines = ",\n".join(f"    {json.dumps(key)}: {json.dumps(item, sort_keys=True)}" for key, item in member.items())
        parts.append(f"  {json.dumps(name)}: {{\n{lines}\n  }}")
    path.write_text("{\n" + ",\n".join(parts) + "\n}\n")
