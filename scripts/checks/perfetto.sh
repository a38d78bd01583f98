#!/usr/bin/env bash
# Perfetto's own descriptors (its Python package) read what pumice trace to-perfetto writes in Perfetto's format, and find
# in it what the same traces are as JSON: of seeds of the fuzzer, and of a run of two programs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

target_dir=${CARGO_TARGET_DIR:-target}
python=${PUMICE_PYTHON:-$target_dir/venv/bin/python3}
if ! "$python" -c 'from perfetto.protos.perfetto.trace import perfetto_trace_pb2' 2>/dev/null; then
    echo "perfetto: no Python with perfetto: python3 -m venv $target_dir/venv && $target_dir/venv/bin/pip install perfetto" >&2
    exit 1
fi
if [[ -z ${PUMICE:-} ]]; then
    cargo build --quiet
    PUMICE=$target_dir/debug/pumice
fi

work=$(mktemp -d)
export XDG_RUNTIME_DIR=$work
pids=()
cleanup() {
    kill -KILL ${pids[@]+"${pids[@]}"} 2>/dev/null || true
    wait 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT

# judge TRACE...: both forms of these traces hold the same.
judge() {
    "$PUMICE" trace to-perfetto "$@" -o "$work/timeline.pftrace" 2>/dev/null
    "$PUMICE" trace to-perfetto "$@" -o "$work/timeline.json" 2>/dev/null
    "$python" tests/trace/pftrace.py "$work/timeline.pftrace" "$work/timeline.json"
}

judge fuzz/seeds/trace/server fuzz/seeds/trace/client
judge fuzz/seeds/trace/ud fuzz/seeds/trace/cut
if ! command -v ibv_rc_pingpong >/dev/null; then
    echo "SKIPPED: perfetto needs ibv_rc_pingpong: apt-get install ibverbs-utils"
    exit 0
fi
port=$((30000 + $$ % 1000))
net=127.$((140 + $$ % 40)).$((RANDOM % 250))
"$PUMICE" run --addr "$net.1" --trace "$work/server" -- ibv_rc_pingpong -d pumice0 -g 0 -p $port -n 200 >/dev/null &
pids+=($!)
rule='drop name=one opcode=send message=50 transmission=1'
# The server does not say when it listens.
until "$PUMICE" run --addr "$net.2" --trace "$work/client" --fault "$rule" -- \
    ibv_rc_pingpong -d pumice0 -g 0 -p $port -n 200 localhost >"$work/out" 2>&1; do
    grep -q "Couldn't connect" "$work/out" || {
        cat "$work/out" >&2
        exit 1
    }
done
wait "${pids[0]}"
judge "$work/server" "$work/client" | tee "$work/found"
grep -q 'round trip' "$work/found"
