#!/usr/bin/env python3
"""A preprocessor of mdBook: the first use of a word of RDMA on a page leads to its row of the glossary.

The words are the left column of "Words of RDMA". Headings, tables, code and links stay as they are, and so do pages that are
looked up.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from chapters import page_of, preprocess

GLOSSARY = Path(__file__).with_name("glossary.md")
# They mean something else in most sentences.
COMMON = {"event", "pin", "credit", "completion", "private data", "RC", "UD"}
LOOKED_UP = ("reference/", "glossary.md", "statements.md", "sentences.md", "decisions/", "checks/", "SUMMARY.md")
MOST = 6
# What is not prose: code, links, pictures, HTML, remarks.
ASIDE = re.compile(r"`[^`]*`|!?\[[^\]]*\](?:\([^)]*\))?|<[^>]*>|\*\*[^*]*\*\*")


def words() -> list[str]:
    rows = re.findall(r"^\| ([^|]+) \|", GLOSSARY.read_text().partition("## Words of RDMA")[2], re.M)
    found = [word.strip() for row in rows[1:] for word in row.split(",")]
    return sorted(set(found) - COMMON - {"Word", "---"}, key=len, reverse=True)


def prose(text: str) -> list[tuple[int, int]]:
    """Where sentences are: from, to."""
    spans, at, inside = [], 0, False
    for line in text.splitlines(keepends=True):
        if line.startswith("```"):
            inside = not inside
        elif not inside and line.strip() and line[0] not in "#|<>`    ":
            last = 0
            for aside in ASIDE.finditer(line):
                spans.append((at + last, at + aside.start()))
                last = aside.end()
            spans.append((at + last, at + len(line)))
        at += len(line)
    return spans


def linked(text: str, page: str) -> str:
    """The text with links at the first uses, from the last to the first, so that positions stay."""
    way = posixpath.relpath("glossary.html", posixpath.dirname(page) or ".")
    spans, uses = prose(text), []
    for word in words():
        pattern = re.compile(rf"\b{re.escape(word)}s?\b")
        hits = (hit for start, end in spans for hit in pattern.finditer(text, start, end))
        hit = next((hit for hit in hits if all(hit.end() <= start or end <= hit.start() for start, end, _ in uses)), None)
        if hit:
            uses.append((hit.start(), hit.end(), word))
    for start, end, word in sorted(sorted(uses)[:MOST], reverse=True):
        text = f"{text[:start]}[{text[start:end]}]({way}?filter={word.replace(' ', '%20')}){text[end:]}"
    return text


def change(found: list[dict]) -> None:
    for chapter in found:
        page = page_of(chapter)
        if page and not page.startswith(LOOKED_UP):
            chapter["content"] = linked(chapter["content"], page)


preprocess(change)
