# For the scripts beside this one: an unmodified program as server and client on libpumice.so.
# Sourced. Each pair has two loopback addresses and a TCP port of its own; with PUMICE_ACCEPT_SHARED set, both processes of
# a pair share the address.
# shellcheck shell=bash

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
target_dir=$(realpath -m "${CARGO_TARGET_DIR:-target}")
logs=$target_dir/accept
limit_seconds=${PUMICE_ACCEPT_SECONDS:-30}
passed=0
failed=0
skipped=0
number=0

# The object under all the names that programs ask for.
build_libraries() {
    cargo build --quiet --release -p pumice-capi
    libraries=$target_dir/accept/lib
    rm -rf "$logs"
    mkdir -p "$libraries"
    local name
    for name in libibverbs.so.1 librdmacm.so.1 libmlx5.so.1 libefa.so.1 libmlx4.so.1 libmana.so.1 libibverbs.so librdmacm.so; do
        ln -sf ../../release/libpumice.so "$libraries/$name"
    done
}

# need PROGRAM PACKAGE: nothing is tried without it.
need() {
    command -v "$1" >/dev/null && return
    printf '**** NOTHING WAS TRIED: there is no %s: apt-get install %s\n' "$1" "$2" >&2
    [[ -z ${PUMICE_ACCEPT_REQUIRED:-} ]]
    exit
}

pass() {
    passed=$((passed + 1))
    printf 'PASS  %s\n' "$1"
}

fail() {
    failed=$((failed + 1))
    printf 'FAIL  %s\n' "$1"
    sed 's/^/      | /' "${@:2}" | grep -v '|  *$' | tail -n 12
}

skip() {
    skipped=$((skipped + 1))
    printf 'SKIP  %s: %s\n' "$1" "$2"
}

# on ADDRESS COMMAND...: with the object, on one address.
on() {
    PUMICE_ADDR=$1 PUMICE_EXPLAIN=1 LD_LIBRARY_PATH=$libraries timeout "$limit_seconds" "${@:2}"
}

# Whether a TCP port of any address is being listened on.
listening() {
    local hex
    hex=$(printf ':%04X' "$1")
    awk -v port="$hex" '$4 == "0A" && substr($2, length($2) - 4) == port { found = 1 } END { exit !found }' \
        /proc/net/tcp /proc/net/tcp6 2>/dev/null
}

# pair WANTED COMMAND...: the server, then the client; both must succeed and the client print WANTED.
# Sets `result` to the client's line with it.
pair() {
    local wanted=$1 name="${*:2}" server port status=0
    shift
    number=$((number + 1))
    port=$((20000 + ($$ * 37 + number) % 12000))
    local base="127.$((64 + $$ % 64)).$((number % 256))"
    local one=$base.1 other=$base.2
    [[ -z ${PUMICE_ACCEPT_SHARED:-} ]] || other=$one
    local out="$logs/$number"
    on "$one" "$@" -p "$port" >"$out.server" 2>&1 &
    server=$!
    until listening "$port" || ! kill -0 "$server" 2>/dev/null; do
        read -r -t 0.02 <> <(:) || true
    done
    on "$other" "$@" -p "$port" 127.0.0.1 >"$out.client" 2>&1 || status=$?
    wait "$server" || status="$status, server $?"
    result=$(grep -m 1 -E -- "$wanted" "$out.client" || true)
    if [[ $status == 0 && -n $result ]]; then
        pass "$name   $(tr -s ' \t' ' ' <<<"$result")"
    else
        fail "$name (status $status)" "$out.server" "$out.client"
    fi
}

finish() {
    printf '%d passed, %d failed, %d skipped; what they printed: %s\n' "$passed" "$failed" "$skipped" "$logs"
    ((failed == 0))
}
