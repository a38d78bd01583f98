# Inside the virtual machine of scripts/rxe-lab, as root: what the scenarios of scripts/accept/rxe are made of.
# The shared folder has pumice's programs in bin/ and libraries in lib/; what programs print is left in out/.
# Sourced by run.sh.
# shellcheck shell=bash

limit_seconds=${limit_seconds:-60}
passed=0
failed=0
skipped=0
number=0

rxe_device=rxe0
rxe_address=10.9.0.1
pumice_address=10.9.0.2
rxe_v6=fd00:9::1
pumice_v6=fd00:9::2

# From the memory of this machine: programs start faster than from the host's folder.
install_programs() {
    mkdir -p /tmp/pumice /share/out
    cp -d /share/bin/* /tmp/pumice/
    mkdir /tmp/pumice/lib
    cp /share/lib/libpumice.so /tmp/pumice/lib/libibverbs.so.1
    local name
    for name in rdmacm mlx5 efa mlx4 mana; do ln -s libibverbs.so.1 "/tmp/pumice/lib/lib$name.so.1"; done
    chmod -R a+rX /tmp/pumice
    ip netns exec peer sleep 100000 &
    inside=$!
}

# What both of an rxe pair run as, and what pumice runs as: an ordinary user without any capability, in a network namespace.
on_rxe() { timeout "$limit_seconds" "$@"; }
in_namespace() {
    local namespace=$1
    shift
    ip netns exec "$namespace" setpriv --reuid=1000 --regid=1000 --clear-groups --no-new-privs --bounding-set=-all \
        --inh-caps=-all env HOME=/tmp LD_LIBRARY_PATH=/tmp/pumice/lib PUMICE_EXPLAIN=1 "$@"
}
on_pumice() { in_namespace peer env PUMICE_ADDR="${pumice_at:-$pumice_address}" timeout "$limit_seconds" "$@"; }

pass() {
    passed=$((passed + 1))
    printf 'PASS  %s\n' "$1"
}

fail() {
    failed=$((failed + 1))
    printf 'FAIL  %s\n' "$1"
    shift
    local file
    for file in "$@"; do
        printf '      | %s:\n' "${file##*/}"
        grep -v '^ *$' "$file" | tail -n 12 | sed 's/^/      |   /'
    done
}

skip() {
    skipped=$((skipped + 1))
    printf 'SKIP  %s: %s\n' "$1" "$2"
}

# listening WHICH PORT: whether someone of that side listens. The network namespace is seen through a process inside it.
listening() {
    local hex process=self
    [[ $1 == rxe ]] || process=$inside
    printf -v hex ':%04X ' "$2"
    grep -q "$hex.* 0A " "/proc/$process/net/tcp" "/proc/$process/net/tcp6" 2>/dev/null
}

# between SERVER CLIENT WANTED NAME COMMAND...: the same command on both sides, one of which is rxe and the other pumice; both
# must succeed, and the client print a line with WANTED. SERVER_ONLY and CLIENT_ONLY are arrays of further arguments.
# In the command, @DEVICE and @GID are replaced by what each side calls them. Sets `result` to the line.
between() {
    local server=$1 client=$2 wanted=$3 name=$4 status=0 process port out
    shift 4
    number=$((number + 1))
    port=$((20000 + number))
    out=/share/out/$number
    local address=$rxe_address
    [[ $server == rxe ]] || address=$pumice_address
    side "$server" "$@" -p "$port" >"$out.server" 2>&1 &
    process=$!
    until listening "$server" "$port" || ! kill -0 "$process" 2>/dev/null; do sleep 0.1; done
    side "$client" "$@" -p "$port" "$address" >"$out.client" 2>&1 || status=$?
    # A server whose client has failed would wait until its time is up.
    ((status == 0)) || kill "$process" 2>/dev/null
    wait "$process" || status="$status, server $?"
    result=$(grep -E -- "$wanted" "$out.client" | tail -n 1)
    local label="$server < $client  $name"
    if [[ $status == 0 && -n $result ]]; then
        pass "$label   $(tr -s ' \t' ' ' <<<"$result")"
    else
        fail "$label (status $status; $out)" "$out.server" "$out.client"
    fi
}

# side WHICH COMMAND...
side() {
    local which=$1 device gid
    shift
    if [[ $which == rxe ]]; then
        device=$rxe_device
        gid=$rxe_gid
        [[ -z ${v6:-} ]] || gid=$rxe_gid6
    else
        device=pumice0
        gid=0
        [[ -z ${v6:-} ]] || local pumice_at=$pumice_v6
    fi
    local arguments=("${@//@DEVICE/$device}")
    "on_$which" "${arguments[@]//@GID/$gid}"
}

# both_ways WANTED NAME COMMAND...
both_ways() {
    between rxe pumice "$@"
    between pumice rxe "$@"
}

finish() {
    printf '%d passed, %d failed, %d skipped on Linux %s\n' "$passed" "$failed" "$skipped" "$(uname -r)"
    ((failed == 0))
}
