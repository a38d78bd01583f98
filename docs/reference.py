#!/usr/bin/env python3
"""A preprocessor of mdBook: the pages of the reference, which the program prints, and the links to them.

The chapters of PAGES stand in SUMMARY.md without a file: `pumice reference PAGE` is their text. On other pages, the first use of a
command in code that prints a part of the reference leads to that part: `pumice run --help`, `pumice explain RNR_RETRY_EXC_ERR`,
`pumice fault kinds`, `pumice reference profiles`. A command that prints no part is an error.

The program is $PUMICE, or the one that cargo built last.
"""

from __future__ import annotations

import os
import posixpath
import re
import subprocess
import sys
from pathlib import Path

from chapters import page_of, preprocess

PAGES = {
    "Command line": "commands",
    "Environment": "environment",
    "Statuses of work completions": "statuses",
    "Errnos of calls": "errnos",
    "Events": "events",
    "Counters": "counters",
    "Faults": "faults",
    "Profiles": "profiles",
    "Personalities, row by row": "personalities",
}
EXPLAINED = ("statuses", "errnos", "events", "counters")
HEADING = re.compile(r"^##+ (.+)$", re.M)
FENCE = re.compile(r"^ *```.*?^ *```$", re.M | re.S)
# What stays as it is: blocks of code, headings, rows of tables, and links; only a command in code has a group.
ASIDE = re.compile(
    r"^ *```.*?^ *```$|^#[^\n]*$|\[[^\]]*\]\([^)]*\)|`(pumice(?: [a-z-]+)* --help|pumice (?:explain|reference)(?: [\w-]+)?|pumice fault (?:kinds|plans))`",
    re.M | re.S,
)


def program() -> str:
    target = Path(os.environ.get("CARGO_TARGET_DIR") or Path(__file__).resolve().parent.parent / "target")
    built = [file for profile in ("debug", "release") if (file := target / profile / "pumice").is_file()]
    found = os.environ.get("PUMICE") or max(built, key=lambda file: file.stat().st_mtime, default=None)
    if not found:
        sys.exit("reference.py: no pumice, which prints the reference: cargo build, or name it in PUMICE")
    return str(found)


def printed(*arguments: str) -> str:
    return subprocess.run([program(), "reference", *arguments], text=True, capture_output=True, check=True).stdout


def anchor(heading: str) -> str:
    """What mdBook makes of a heading."""
    return re.sub(r"[^\w -]", "", heading.strip().lower()).replace(" ", "-")


def short(name: str) -> str:
    return re.sub(r"^(IBV_WC_|IBV_EVENT_|RDMA_CM_EVENT_)", "", name)


def places(pages: dict[str, str]) -> dict[str, str]:
    """Where the book has what a command prints."""
    found = {"pumice --help": "commands.md", "pumice explain": "statuses.md", "pumice fault kinds": "faults.md", "pumice fault plans": "faults.md#ready-plans"}
    for name, text in pages.items():
        found[f"pumice reference {name}"] = f"{name}.md"
        for heading in HEADING.findall(FENCE.sub("", text)):
            place = f"{name}.md#{anchor(heading)}"
            if name == "commands":
                found[f"{heading} --help"] = place
            elif name in EXPLAINED:
                word = heading.split(" ")[0]
                found.setdefault(f"pumice explain {word}", place)
                found.setdefault(f"pumice explain {short(word)}", place)
    return found


def linked(text: str, page: str, where: dict[str, str]) -> str:
    way = posixpath.relpath("reference", posixpath.dirname(page) or ".")
    seen = set()

    def link(found: re.Match[str]) -> str:
        command = found[1]
        # A word in capitals stands for any name; the checks have pages of their own.
        is_form = not command or command in ("pumice reference",) or re.search(r" (NAME|WORD|KIND|PAGE|COMMAND)\b", command)
        if is_form or command in seen:
            return found[0]
        if command not in where:
            sys.exit(f"reference.py: {page}: the reference has nothing that `{command}` prints")
        seen.add(command)
        return f"[{found[0]}]({way}/{where[command]})"

    return ASIDE.sub(link, text)


def change(found: list[dict]) -> None:
    pages = {name: printed(name) for name in printed().split()}
    drafts = {PAGES.get(chapter["name"], chapter["name"]): chapter for chapter in found if not chapter.get("path")}
    if set(pages) != set(PAGES.values()) or set(drafts) != set(pages):
        sys.exit(f"reference.py: the program has {sorted(pages)}, and SUMMARY.md {sorted(drafts)}: correct PAGES or SUMMARY.md")
    where = places(pages)
    for chapter in found:
        page = page_of(chapter)
        if page:
            chapter["content"] = linked(chapter["content"], page, where)
    for name, chapter in drafts.items():
        source = "../src/explain/mod.rs" if name in EXPLAINED else "../src/reference/mod.rs"
        chapter.update(path=f"reference/{name}.md", source_path=source, content=pages[name])


preprocess(change)
