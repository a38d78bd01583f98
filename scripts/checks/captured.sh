#!/usr/bin/env bash
# The laboratory compares captures by captured.awk. What a slow machine may do makes no difference there: a request of the
# connection manager that is sent twice, a request or an acknowledgement that is sent twice. Another length does.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

if [[ -z ${PUMICE:-} ]]; then
    cargo build --quiet
    PUMICE=${CARGO_TARGET_DIR:-target}/debug/pumice
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$PUMICE" capture tests/golden/6.12/cm-rping.pcap >"$work/captured"

reduced() {
    awk -v requester=10.9.0.2 -v part=0 -v once=1 -v own_numbers=1 -f scripts/accept/rxe.d/captured.awk "$1" | sort -s -k 1,1
}

# Queue pair 1 counts its messages, so the repeated REQ and all that follow it have the next PSN.
awk '
    /CM REQ/ { print }
    { if ($3 == ">" && $7 == "0x000001" && $2 == "10.9.0.2") $9 = $9 + 1; print }
    /RC_SEND_ONLY|RC_RDMA_READ_REQUEST|RC_ACKNOWLEDGE/ && !(n++ % 3) { print }' "$work/captured" >"$work/slow"
sed '0,/RC_RDMA_WRITE_ONLY/ s/length 64/length 65/' "$work/captured" | sed '/RC_RDMA_WRITE_ONLY/ s/length 64/length 65/' >"$work/wrong"

for which in captured slow wrong; do reduced "$work/$which" >"$work/$which.reduced"; done
[[ $(wc -l <"$work/slow") -gt $(wc -l <"$work/captured") ]]
[[ -s $work/captured.reduced ]]
diff "$work/captured.reduced" "$work/slow.reduced"
if diff -q "$work/captured.reduced" "$work/wrong.reduced" >/dev/null; then
    echo "another length makes no difference"
    exit 1
fi
