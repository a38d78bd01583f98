#!/usr/bin/env bash
# Words that are spelt wrongly in documents, comments, help texts and messages, by the list of codespell (its Python
# package). scripts/checks/spelling.words has words that are right here.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

target_dir=${CARGO_TARGET_DIR:-target}
python=${PUMICE_PYTHON:-$target_dir/venv/bin/python3}
if ! "$python" -c 'import codespell_lib' 2>/dev/null; then
    echo "spelling: no Python with codespell: python3 -m venv $target_dir/venv && $target_dir/venv/bin/pip install codespell" >&2
    exit 1
fi
# What others wrote, and bytes, are left out.
git ls-files -z '*.md' '*.rs' '*.c' '*.h' '*.sh' '*.py' '*.js' '*.toml' 'scripts/*' |
    grep -zvE '^(tests/golden|fuzz/seeds)/|\.(supp|words)$' |
    xargs -0 "$python" -m codespell_lib --ignore-words scripts/checks/spelling.words
echo "no word is spelt wrongly"
