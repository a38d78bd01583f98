#!/usr/bin/env bash
# Has scapy recompute ICRCs: of the captures given, or else of the golden captures (which show that the judge
# itself is right) and of captures that pumice writes now.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

target_dir=${CARGO_TARGET_DIR:-target}
python=${PUMICE_PYTHON:-$target_dir/venv/bin/python3}
if ! "$python" -c 'import scapy.contrib.roce' 2>/dev/null; then
    echo "scapy-icrc: no Python with scapy: python3 -m venv $target_dir/venv && $target_dir/venv/bin/pip install scapy" >&2
    exit 1
fi
judge=("$python" scripts/checks/scapy-icrc.py)

if (($# > 0)); then
    exec "${judge[@]}" "$@"
fi

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
if [[ -z ${PUMICE:-} ]]; then
    cargo build --quiet
    PUMICE=$target_dir/debug/pumice
fi
pumice() {
    "$PUMICE" "$@"
}

captures=()
while IFS= read -r golden; do
    captures+=("$golden")
    # "blast": wrong ICRCs on purpose.
done < <(find tests/golden \( -name '*.pcap' -o -name '*.pcapng' \) ! -name '*blast*' 2>/dev/null | sort)

# What pumice sends over real sockets: short runs, because scapy judges about a thousand packets a second.
judge_own() {
    local file=$scratch/$1.pcapng
    shift
    pumice "$@" --capture "$file" >/dev/null
    captures+=("$file")
}
for op in write read send atomic; do
    size=(--size 16K)
    [[ $op == atomic ]] && size=()
    judge_own "perf-$op" perf loop --op "$op" ${size[@]+"${size[@]}"} --rounds 1 --duration 0.005
done

if ((${#captures[@]} == 0)); then
    echo "scapy-icrc: there is no capture to judge" >&2
    exit 1
fi
"${judge[@]}" "${captures[@]}"
