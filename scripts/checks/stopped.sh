#!/usr/bin/env bash
# A stopped process that was the first of its address does not keep other programs from being connected or
# refused: while it is stopped, and after it was continued, rping connects to a server beside it, and is
# refused where no server is.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

for program in rping:rdmacm-utils ibv_rc_pingpong:ibverbs-utils; do
    command -v "${program%:*}" >/dev/null && continue
    echo "SKIPPED: stopped needs ${program%:*}: apt-get install ${program#*:}"
    exit 0
done
if [[ -z ${PUMICE:-} ]]; then
    cargo build --quiet
    PUMICE=${CARGO_TARGET_DIR:-target}/debug/pumice
fi

work=$(mktemp -d)
address=127.$((140 + $$ % 40)).$((RANDOM % 250)).$((1 + $$ % 250))
tcp_port=$((28000 + $$ % 1000))
run=("$PUMICE" run --addr "$address" --log warn --)
pids=()
cleanup() {
    kill -KILL ${pids[@]+"${pids[@]}"} 2>/dev/null || true
    wait 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT

# wait_for COMMAND...: until it succeeds, a minute at most.
wait_for() {
    local end=$((SECONDS + 60))
    until "$@"; do
        ((SECONDS < end)) || {
            echo "stopped: not within a minute: $*" >&2
            exit 1
        }
        sleep 0.05
    done
}
listens() { ss -ltnH "sport = :$tcp_port" | grep -q .; }
is_stopped() { [[ $(awk '{ print $3 }' "/proc/$1/stat") == T ]]; }
# rping once: 0 if it was connected, 124 if that took too long, else it was refused. rping repeats a request
# after four seconds, and gives up after more than a minute.
connects() { timeout 60 "${run[@]}" rping -c -a "$address" -p "$1" -C 1 >"$work/client" 2>&1 </dev/null; }

"${run[@]}" ibv_rc_pingpong -g 0 -p "$tcp_port" >/dev/null 2>&1 </dev/null &
first=$!
pids+=("$first")
wait_for listens
"${run[@]}" rping -s -P -a "$address" -p 7174 >/dev/null 2>&1 </dev/null &
pids+=("$!")
wait_for connects 7174

failed=0
expect() {
    local what=$1 port=$2 wanted=$3 status=0 begun=${EPOCHREALTIME/./}
    connects "$port" || status=$?
    local outcome=refused
    ((status != 0)) || outcome=connected
    ((status != 124)) || outcome="left waiting"
    echo "stopped: $what: $outcome after $(((${EPOCHREALTIME/./} - begun) / 1000)) ms"
    [[ $outcome == "$wanted" ]] || failed=1
}
kill -STOP "$first"
wait_for is_stopped "$first"
for _ in 1 2 3; do
    expect "a server listens, the first process is stopped" 7174 connected
    expect "no server listens, the first process is stopped" 7175 refused
done
kill -CONT "$first"
expect "a server listens, all run" 7174 connected
expect "no server listens, all run" 7175 refused
exit "$failed"
