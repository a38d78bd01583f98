#!/usr/bin/env bash
# No kind of message costs 3 % more instructions than the last line of benches/history says (docs/decisions/fast-path.md). The
# lane "instructions" of .github/workflows/pull-request.yml compares with the commit before as well. PUMICE_RELEASE names a folder with
# what scripts/build-release has made; without it the library is built.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
for program in valgrind:valgrind cc:gcc python3:python3; do
    command -v "${program%:*}" >/dev/null && continue
    echo "instructions are counted by valgrind, and ${program%:*} is missing: apt-get install ${program#*:}"
    exit 77
done
if [[ ! -f /usr/include/infiniband/verbs.h ]]; then
    echo 'instructions are counted of a C program, and verbs.h is missing: apt-get install libibverbs-dev'
    exit 77
fi
exec benches/instructions.sh --history ${PUMICE_RELEASE:+--built "$PUMICE_RELEASE"}
