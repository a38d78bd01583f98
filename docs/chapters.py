"""What the preprocessors of the book share: mdBook pipes the book as JSON, and takes it back changed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator


def chapters(items: list) -> Iterator[dict]:
    """All chapters, in the order of the sidebar; one without a file has no path."""
    for item in items:
        chapter = item.get("Chapter") if isinstance(item, dict) else None
        if chapter:
            yield chapter
            yield from chapters(chapter["sub_items"])


def page_of(chapter: dict) -> str | None:
    """The path of the page below docs. mdBook has made README.md of a folder its index.md, and the folder is the same."""
    source = chapter.get("source_path")
    # A page of the reference has its source outside of docs.
    return source if source and not source.startswith("../") else chapter.get("path")


def preprocess(change: Callable[[list[dict]], None]) -> None:
    """Answers mdBook: change gets all chapters of the book."""
    if sys.argv[1:2] == ["supports"]:
        return
    _, book = json.load(sys.stdin)
    # Its name in mdBook 0.5, and in earlier versions.
    change(list(chapters(book.get("items") or book.get("sections") or [])))
    json.dump(book, sys.stdout)
