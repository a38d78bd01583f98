#!/usr/bin/env python3
"""A preprocessor of mdBook: the table of sentences.md, from the string literals of the sources.

    sentences.py table       prints the table
    sentences.py supports X  mdBook asks this, and pipes the book otherwise

Each sentence has who says it and the page about it: those of the first row of SPEAKERS whose folder has it.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from chapters import preprocess

ROOT = Path(__file__).resolve().parent.parent
MARK = "<!-- the table of sentences -->"
SPEAKERS = [
    ("transport/src/qp/transition", "a change of a queue pair's state", "troubleshooting.md#connecting-fails"),
    ("transport/src/types", "the log: a queue pair, a message", "reference/statuses.md"),
    ("transport/src/cm", "the connection manager", "troubleshooting.md#connecting-fails"),
    ("device/analysis/src/check", "pumice check", "checks/README.md"),
    ("device/analysis/src/waits", "the log: a wait in vain", "checks/waits-in-vain.md"),
    ("device/recording/src/recorder", "pumice trace", "trace.md"),
    ("device/recording/src", "pumice trace", "trace.md"),
    ("device/recording/src/capture", "pumice capture", "commands.md#captures-pumice-capture"),
    ("device/model/src/settings", "an option or variable", "reference/environment.md"),
    ("device/model/src/addresses", "an address", "troubleshooting.md#connecting-fails"),
    ("device/model/src/profile", "a profile", "reference/profiles.md"),
    ("device/faults/src/text", None, None),
    ("device/faults/src", "a fault plan", "fault-plans.md"),
    ("device/platform/src/order", "a replay", "fault-plans.md#record-and-replay"),
    ("device/fabric/src/switched", "a topology", "topology.md"),
    ("device/fabric/src/sharing", "processes that share an address", "same-host.md"),
    ("device/fabric/src", "a port", "troubleshooting.md#the-program-finds-no-device"),
    ("device/engine/src/hca", "a refused call", "reference/errnos.md"),
    ("device/src", "opening the device", "troubleshooting.md#the-program-finds-no-device"),
    ("verbs/capi/src/rsocket", "rsockets", "run.md"),
    ("verbs/capi/src/rdma_cm", "a refused call of rdma_cm", "reference/errnos.md"),
    ("verbs/capi/src/calls", "a refused call", "reference/errnos.md"),
    ("verbs/capi/src/objects", "a refused call", "reference/errnos.md"),
    ("verbs/capi/src", "the library", "troubleshooting.md"),
    ("verbs/world/src", "pumice world", "world.md"),
    ("verbs/perf/src", "pumice perf", "commands.md#measuring-pumice-perf"),
    ("verbs/src", "the Rust API", "rust.md"),
    ("src/explain", None, None),
    ("src/reference", None, None),
    ("src/world", "pumice world", "world.md"),
    ("src/doctor", "pumice doctor", "troubleshooting.md"),
    ("src/sweep", "pumice sweep", "sweep.md"),
    ("src/fault", "pumice fault", "fault-plans.md"),
    ("src/run", "pumice run", "run.md"),
    ("src/course", "pumice course", "course/README.md"),
    ("src/topology", "pumice topology", "topology.md"),
    ("src/trace", "pumice trace", "trace.md"),
    ("src", "a command", "commands.md"),
]
# What may stand in a source, the longest first; only a plain literal has a group.
TOKENS = re.compile(
    r"""//[^\n]*|\#!?\[[^\n]*|r\#".*?"\#|b?'(?:\\.[^']*|[^'\\])'|"((?:[^"\\]|\\.)*)\"""", re.S
)
# A name of an option, or what Rust's own panics say, is for those who change the source.
FOR_DEVELOPERS = re.compile(r"(?:expect|unwrap_or_else|assert\w*!|debug_assert\w*!|unreachable!|panic!)\($")


def literals(source: str) -> list[str]:
    """The string literals before the tests of a source, as they are printed."""
    text = source.split("#[cfg(test)]")[0]
    found = []
    for token in TOKENS.finditer(text):
        if token[1] is None or FOR_DEVELOPERS.search(text[max(0, token.start() - 24) : token.start()].rstrip()):
            continue
        joined = re.sub(r"\\\n\s*", "", token[1])
        found.append(re.sub(r"\\(.)", lambda escaped: "\n" if escaped[1] == "n" else escaped[1], joined))
    return found


def sentence(literal: str) -> str | None:
    """The sentence with … for what differs from run to run; none for names, forms and patterns."""
    text = re.sub(r"\{\{|\}\}|\{[^{}]*\}", lambda found: found[0][0] if found[0] in ("{{", "}}") else "…", literal)
    words = sum(bool(re.search(r"[^\W\d_]{2}", word)) for word in text.split())
    if re.search(r"[\n\t<]|  ", text) or words < (3 if "…" in text else 4):
        return None
    return text.strip()


def table() -> dict[str, tuple[str, str]]:
    found: dict[str, tuple[str, str]] = {}
    seen: set[Path] = set()
    for place, who, page in SPEAKERS:
        top = ROOT / place
        files = sorted(top.rglob("*.rs")) if top.is_dir() else [top.with_suffix(".rs")]
        if not files[0].is_file():
            sys.exit(f"sentences.py: there is no {place}: correct SPEAKERS")
        for file in files:
            if file in seen or file.name.endswith("tests.rs") or "tests" in file.parts:
                continue
            seen.add(file)
            for said in filter(None, map(sentence, literals(file.read_text()))) if who else ():
                found.setdefault(said, (who, page))
    return found


def markdown() -> str:
    lines = ["| Sentence | Who says it | Read |", "|---|---|---|"]
    for said, (who, page) in sorted(table().items(), key=lambda row: row[0].lower()):
        name = re.sub(r"(/README)?\.md.*", "", page).rpartition("/")[2]
        cell = re.sub(r"([\\|\[\]*_`<>#])", r"\\\1", said)
        lines.append(f"| {cell} | {who} | [{name}]({page}) |")
    return "\n".join(lines)


def change(found: list[dict]) -> None:
    for chapter in found:
        if MARK in chapter["content"]:
            chapter["content"] = chapter["content"].replace(MARK, markdown())


def main() -> None:
    if sys.stdin.isatty() or sys.argv[1:] == ["table"]:
        print(markdown())
    else:
        preprocess(change)


main()
