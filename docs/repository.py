#!/usr/bin/env python3
"""A preprocessor of mdBook: links that lead out of docs become links to the repository.

On GitHub a page links to a source file by its path. The book has no source files, so the same link leads to the
file on GitHub there. `REPOSITORY` is the address of the folder that the paths are relative to.
"""

import posixpath
import re

from chapters import page_of, preprocess

REPOSITORY = "https://github.com/pumice-rdma/pumice/blob/main/"
LINK = re.compile(r"\]\(([^)\s]+)\)")


def target_in_book(page, target):
    """The target as the book has it; page: the path of the page below docs."""
    if "://" in target or target.startswith("#"):
        return target
    path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), target))
    if not path.startswith("docs/"):
        return REPOSITORY + path
    # mdBook names the page of a folder's README.md so, and does not tell the links.
    return re.sub(r"(^|/)README\.md(?=#|$)", r"\1index.md", target)


def change(found):
    for chapter in found:
        page = page_of(chapter)
        if page:
            chapter["content"] = LINK.sub(lambda link: f"]({target_in_book(page, link.group(1))})", chapter["content"])


preprocess(change)
