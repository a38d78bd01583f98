"""Writes the wheel: the module, the program `pumice`, and its libraries.

    wheel.py --version VERSION --tag TAG --stage FOLDER --module FOLDER --out FILE

FOLDER of --stage has bin, lib and share as below a prefix: installers put `NAME.data/scripts` into bin and `NAME.data/data` into the
prefix, so the program finds its libraries in ../lib/pumice, as in all packages of pumice. FOLDER of --module has pyproject.toml.

A wheel is a zip file with three files about it, and build backends add to theirs the time of the build, or build the program
themselves, so this does not use one. Files are sorted and have the time SOURCE_DATE_EPOCH.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import os
import time
import tomllib
import zipfile
from pathlib import Path

LICENCES = ["LICENSE-APACHE", "LICENSE-MIT"]


def metadata(project: dict, version: str, description: str) -> str:
    """The core metadata, version 2.4."""
    lines = [
        "Metadata-Version: 2.4",
        f"Name: {project['name']}",
        f"Version: {version}",
        f"Summary: {project['description']}",
        f"License-Expression: {project['license']}",
        *(f"License-File: {name}" for name in LICENCES),
        f"Keywords: {','.join(project['keywords'])}",
        *(f"Classifier: {name}" for name in project["classifiers"]),
        f"Requires-Python: {project['requires-python']}",
        *(f"Project-URL: {name}, {url}" for name, url in project["urls"].items()),
        "Description-Content-Type: text/markdown",
    ]
    return "\n".join(lines) + "\n\n" + description


def entry_points(groups: dict) -> str:
    """entry_points.txt."""
    sections = []
    for group, entries in groups.items():
        sections.append(f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in entries.items()))
    return "\n".join(sections)


def contents(options: argparse.Namespace) -> dict[str, tuple[bytes, int]]:
    """Every file of the wheel but RECORD: its bytes and its mode."""
    project = tomllib.loads((options.module / "pyproject.toml").read_text())["project"]
    name = f"{project['name']}-{options.version}"
    files: dict[str, tuple[bytes, int]] = {}
    for path in (options.module / project["name"]).rglob("*"):
        if path.suffix in (".py", ".typed"):
            files[str(path.relative_to(options.module))] = (path.read_bytes(), 0o644)
    for path in (options.stage / "bin").iterdir():
        files[f"{name}.data/scripts/{path.name}"] = (path.read_bytes(), 0o755)
    for path in (options.stage / "lib/pumice").iterdir():
        files[f"{name}.data/data/lib/pumice/{path.name}"] = (path.read_bytes(), 0o755)
    # Completions and manual pages; the licences are in the wheel's own folder.
    for path in (options.stage / "share").rglob("*"):
        inside = path.relative_to(options.stage)
        if path.is_file() and inside.parts[1] != "doc":
            files[f"{name}.data/data/{inside}"] = (path.read_bytes(), 0o644)
    about = {
        "METADATA": metadata(project, options.version, (options.module / project["readme"]).read_text()),
        "WHEEL": f"Wheel-Version: 1.0\nGenerator: pumice\nRoot-Is-Purelib: false\nTag: {options.tag}\n",
        "entry_points.txt": entry_points(project["entry-points"]),
    }
    for licence in LICENCES:
        about[f"licenses/{licence}"] = (options.stage / "share/doc/pumice" / licence).read_text()
    files.update({f"{name}.dist-info/{file}": (text.encode(), 0o644) for file, text in about.items()})
    return files


def record(files: dict[str, tuple[bytes, int]], own_name: str) -> bytes:
    """The list of all files with their digests."""
    lines = []
    for name in sorted(files):
        data = files[name][0]
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(data)}\n")
    return "".join([*lines, f"{own_name},,\n"]).encode()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--version", required=True)
    parser.add_argument("--tag", required=True)
    parser.add_argument("--stage", type=Path, required=True)
    parser.add_argument("--module", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    files = contents(options)
    own_name = f"pumice-{options.version}.dist-info/RECORD"
    # The files about the wheel come last, as installers like them.
    ordered = sorted(files, key=lambda name: (".dist-info/" in name, name))
    files[own_name] = (record(files, own_name), 0o644)
    # A zip file knows no earlier time.
    date = time.gmtime(max(int(os.environ["SOURCE_DATE_EPOCH"]), 315532800))[:6]
    with zipfile.ZipFile(options.out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as wheel:
        for name in [*ordered, own_name]:
            data, mode = files[name]
            info = zipfile.ZipInfo(name, date)
            info.external_attr = (0o100000 | mode) << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            # Else it says which system made it.
            info.create_system = 3
            wheel.writestr(info, data, compresslevel=9)


if __name__ == "__main__":
    main()
