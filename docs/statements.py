#!/usr/bin/env python3
"""A preprocessor of mdBook: the page of statements that tests cite (tests/statements.tsv), and of the rules that the code cites.

    statements.py page       prints the page
    statements.py check      fails if a citation is in no table, or a statement has no test
    statements.py supports X mdBook asks this, and pipes the book otherwise

The page is the chapter TITLE, which stands in SUMMARY.md without a file. A citation is a line `//= ` with the source of the rule, and below it lines `//| ` with the rule. tests/floors/citations.rs holds
them to this form.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from pathlib import Path

from chapters import preprocess

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("transport", "device", "verbs")
TITLE = "Statements about verbs, and the rules that the code cites"
INTRODUCTION = """# Statements that tests cite

What software implementations of RoCE get wrong, as statements that a test can check. A test that is called `statement_NN_…`, or
whose comment says "Statement NN", checks the one of that number.

*Wire*: a peer that reads packets sees it. *API*: a program that calls verbs sees it. *CM*: a peer of the connection manager sees it.

| # | Seen by | Statement |
|---|---|---|
"""
CITED = """
## Rules that the code cites

A comment above a line of code names the rule that this line realises: a line `//= ` with the source, and below it lines `//| `
with the rule in our own words.

"""
CITATION = re.compile(r"^[ \t]*//= (.+)\n((?:[ \t]*//\| .*\n)+)", re.M)
TEST = re.compile(r"^\s*fn (statement_(\d+)\w*)\(", re.M)
# Heading, introduction, and how the sources begin.
SECTIONS = [
    ("Statements in the code", "The numbers are those of the list above.", "statement:"),
    (
        "Architecture specification",
        "Compliance statements and sections of the InfiniBand architecture specification, release 1.5.",
        "ibta-1.5#",
    ),
    ("Manual pages", "The manual pages of rdma-core.", "man:"),
    ("Linux", "Files and functions of the kernel: rdma_rxe, and the core of its RDMA subsystem.", "linux:"),
]


def read() -> tuple[dict[tuple[str, str], set[str]], dict[int, set[str]]]:
    """The files of each citation, and the tests of each statement."""
    citations, tests = defaultdict(set), defaultdict(set)
    for file in sorted(file for folder in FOLDERS for file in (ROOT / folder).rglob("*.rs") if "target" not in file.parts):
        text = file.read_text()
        for source, lines in CITATION.findall(text):
            rule = " ".join(line.strip().removeprefix("//| ") for line in lines.splitlines())
            citations[source.strip(), rule].add(file.relative_to(ROOT).as_posix())
        for name, number in TEST.findall(text):
            tests[int(number)].add(name)
    return citations, tests


def in_code(names: set[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))


def order(row: tuple[str, str]) -> tuple[int, str, str]:
    number = row[0].partition("statement:")[2]
    return (int(number) if number else 0, *row)


def statements() -> dict[int, tuple[str, str]]:
    """Who sees it, and the statement, by its number."""
    rows = [line.split("\t") for line in (ROOT / "tests/statements.tsv").read_text().splitlines() if not line.startswith("#")]
    return {int(number): (seen_by, sentence) for number, seen_by, sentence in rows}


def page() -> str:
    rows = [f"| {number} | {seen_by} | {sentence} |\n" for number, (seen_by, sentence) in statements().items()]
    return INTRODUCTION + "".join(rows) + CITED + tables()


def tables() -> str:
    citations, tests = read()
    lines = []
    for heading, introduction, begin in SECTIONS:
        has_tests = begin == "statement:"
        lines += [f"### {heading}", "", introduction, "", f"| Citation | Rule | Files |{' Tests |' if has_tests else ''}"]
        lines.append(f"|---|---|---|{'---|' if has_tests else ''}")
        for source, rule in sorted((row for row in citations if row[0].startswith(begin)), key=order):
            more = f" {in_code(tests[int(source.removeprefix(begin))])} |" if has_tests else ""
            lines.append(f"| `{source}` | {rule.replace('|', chr(92) + '|')} | {in_code(citations[source, rule])} |{more}")
        lines.append("")
    return "\n".join(lines)


def check() -> None:
    citations, tests = read()
    begins = tuple(begin for *_, begin in SECTIONS)
    faults = [f"{source}: no table has such sources" for source, _ in citations if not source.startswith(begins)]
    cited = {int(source.removeprefix("statement:")) for source, _ in citations if source.startswith("statement:")}
    faults += [f"statement {number} has no test" for number in sorted(cited - set(tests))]
    faults += [f"the code cites statement {number}, which tests/statements.tsv has not" for number in sorted(cited - set(statements()))]
    rows = len(re.findall(r"^\| `", page(), re.M))
    if rows != len(citations) or rows < 300:
        faults.append(f"the tables have {rows} rows, and the sources {len(citations)} citations")
    print("\n".join(faults) if faults else f"{rows} citations of rules and {len(statements())} statements are on the page")
    sys.exit(bool(faults))


def change(found: list[dict]) -> None:
    chapter = next((chapter for chapter in found if chapter["name"] == TITLE), None)
    if not chapter:
        sys.exit(f"statements.py: SUMMARY.md has no chapter {TITLE!r}")
    chapter.update(path="statements.md", source_path="../tests/statements.tsv", content=page())


def main() -> None:
    if sys.argv[1:] == ["check"]:
        check()
    elif sys.stdin.isatty() or sys.argv[1:] == ["page"]:
        print(page())
    else:
        preprocess(change)


main()
