#!/usr/bin/env python3
"""Follows the links of a book of HTML: book-links.py BOOK SUMMARY.

Fails if a link or a picture leads to a file or a heading that is not there, or if a document beside SUMMARY is in no
chapter. Links to other sites are not followed.
"""

import pathlib
import re
import sys
import urllib.parse
from html.parser import HTMLParser


class Page(HTMLParser):
    """The links of a page, and the names to which links may lead."""

    def __init__(self, text):
        super().__init__()
        self.links, self.names = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.names.update(value for key, value in attrs.items() if key in ("id", "name") and value)
        for key in ("href", "src"):
            if attrs.get(key) and tag in ("a", "img"):
                self.links.append(attrs[key])


def main():
    book, summary = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
    files = sorted(book.rglob("*.html"))
    pages = {file: Page(file.read_text()) for file in files}
    faults, followed = [], 0
    for file, page in pages.items():
        # They repeat all others, or have links that only the browser completes.
        if file.name in ("print.html", "toc.html", "404.html"):
            continue
        for link in page.links:
            where = urllib.parse.urlsplit(link)
            if where.scheme or where.netloc:
                continue
            followed += 1
            path = urllib.parse.unquote(where.path)
            target = (file.parent / path).resolve() if path else file
            if target.is_dir():
                target = target / "index.html"
            name = urllib.parse.unquote(where.fragment)
            if not target.is_file():
                faults.append(f"{file.relative_to(book)}: {link}: there is no such file in the book")
            elif name and target in pages and name not in pages[target].names:
                faults.append(f"{file.relative_to(book)}: {link}: the page has no such heading")
    docs = summary.parent
    listed = set(re.findall(r"\]\(([^)]+\.md)\)", summary.read_text()))
    for document in sorted(docs.rglob("*.md")):
        name = str(document.relative_to(docs))
        if name not in listed and document != summary:
            faults.append(f"{name} is in no chapter of {summary}")
    for fault in faults:
        print(fault)
    print(f"{len(pages)} pages, {followed} links within the book, {len(faults)} faults")
    sys.exit(1 if faults or followed == 0 else 0)


main()
