# For the scripts beside this one: an unmodified program as server and client on libpumice.so.
# Sourced. Where the two processes are is the `place`: two loopback addresses of their own unless something else is said.
# shellcheck shell=bash

# How the script was begun, to begin it once more.
script=$(realpath "$0")
begun_in=$PWD
declare -p begun_with >/dev/null 2>&1 || begun_with=("$@")
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
target_dir=$(realpath -m "${CARGO_TARGET_DIR:-target}")
# Each script has a folder of its own, so that several may run at once; one that `shuffle` begins has another than the script itself,
# which may run beside it.
logs=$target_dir/accept/$(basename "$0")${PUMICE_WIRE:+-$PUMICE_WIRE}${PUMICE_SHUFFLE:+-shuffle}
limit_seconds=${PUMICE_ACCEPT_SECONDS:-60}
passed=0
failed=0
skipped=0
number=0
begun=$SECONDS
# On AMD EPYC and A64FX, and only there, UCX registers memory with IBV_ACCESS_RELAXED_ORDERING. Then its put and flush, told of by
# TCP, promise no data, and a shuffled schedule shows it (docs/shuffle.md). Schedules do not depend on the processor.
[[ -z ${PUMICE_SHUFFLE:-} ]] || export UCX_IB_PCI_RELAXED_ORDERING=n
# Processes that hold namespaces.
holders=()

# The launcher, the objects, and libpumice.so under all the names that programs ask for, for those who do without a launcher.
# Every script builds the whole workspace with the same features: for a few packages Cargo would choose other features of
# the crates that they share, and compile the device once more.
# Then the script begins once more, in a network and a runtime folder of its own: what it installs and fetches comes before this.
build_libraries() {
    [[ -n ${PUMICE_ACCEPT_BUILT:-} ]] || scripts/build-release
    if [[ -z ${PUMICE_ISOLATED:-} ]]; then
        local isolated=$PWD/scripts/isolated
        cd "$begun_in"
        PUMICE_ACCEPT_BUILT=yes exec "$isolated" "$script" ${begun_with[@]+"${begun_with[@]}"}
    fi
    pumice=$target_dir/release/pumice
    libraries=$target_dir/accept/lib
    rm -rf "$logs"
    mkdir -p "$libraries" "$logs"
    local name
    for name in libibverbs.so.1 librdmacm.so.1 libmlx5.so.1 libefa.so.1 libmlx4.so.1 libmana.so.1 libibverbs.so librdmacm.so; do
        ln -sf ../../release/libpumice.so "$libraries/$name"
    done
}

# install PACKAGE...: from Debian, as root or through sudo that asks nothing.
install() {
    command -v apt-get >/dev/null || return 1
    local root=()
    [[ $(id -u) == 0 ]] || root=(sudo -n)
    "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -y -qq --no-install-recommends "$@" \
        >/dev/null 2>&1 && return
    "${root[@]}" apt-get -o DPkg::Lock::Timeout=300 update -qq >/dev/null 2>&1 &&
        "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -y -qq --no-install-recommends "$@" \
            >/dev/null 2>&1
}

# need PROGRAM PACKAGE: nothing is tried without it, and it cannot be installed.
need() {
    command -v "$1" >/dev/null && return
    if install "$2" && command -v "$1" >/dev/null; then return; fi
    printf '**** NOTHING WAS TRIED: there is no %s: apt-get install %s\n' "$1" "$2" >&2
    [[ -z ${PUMICE_ACCEPT_REQUIRED:-} ]]
    exit
}

# wish PROGRAM-OR-FILE PACKAGE: the same where something can be tried without it.
wish() {
    command -v "$1" >/dev/null || [[ -e $1 ]] || install "$2" || true
}

pass() {
    passed=$((passed + 1))
    printf 'PASS  %s\n' "$1"
}

fail() {
    failed=$((failed + 1))
    printf 'FAIL  %s\n' "$1"
    local file
    for file in "${@:2}"; do
        sed 's/^/      | /' "$file" | grep -v '|  *$' | tail -n 40 || true
    done
}

skip() {
    skipped=$((skipped + 1))
    printf 'SKIP  %s: %s\n' "$1" "$2"
}

# on ADDRESS COMMAND...: through the launcher, on one address.
on() {
    timeout "$limit_seconds" "$pumice" run --addr "$1" --log warn -- "${@:2}"
}

# place shared|two: where the pairs that follow are: on one loopback address, or on one each.
place() {
    where=$1
    one_in=()
    other_in=()
    meet=127.0.0.1
}
place two

# place_veth MTU 4|6: in a network namespace each, joined by a veth pair with that link MTU, on addresses of that IP version.
# False if this machine does not let us.
place_veth() {
    veth "$1" || return
    where="veth$1-ipv$2"
    one_in=(nsenter --net="/proc/$namespace_one/ns/net")
    other_in=(nsenter --net="/proc/$namespace_other/ns/net")
    meet=192.0.2.1
    case $2 in
    4) one=192.0.2.1 other=192.0.2.2 ;;
    6) one=2001:db8::1 other=2001:db8::2 ;;
    esac
}

# Two namespaces with a link of this MTU between them. They go with the processes that hold them.
namespaces_mtu=
veth() {
    [[ $namespaces_mtu != "$1" ]] || return 0
    if [[ -z $namespaces_mtu ]]; then
        [[ $(id -u) == 0 ]] && command -v ip >/dev/null && command -v nsenter >/dev/null || return
        unshare --net sleep 3600 2>/dev/null &
        namespace_one=$!
        unshare --net sleep 3600 2>/dev/null &
        namespace_other=$!
        holders+=("$namespace_one" "$namespace_other")
        local own tries=0
        own=$(readlink /proc/self/ns/net)
        while [[ $(readlink "/proc/$namespace_one/ns/net") == "$own" || $(readlink "/proc/$namespace_other/ns/net") == "$own" ]]; do
            kill -0 "$namespace_one" "$namespace_other" 2>/dev/null && ((tries++ < 3000)) || return
            nap
        done
        nsenter --net="/proc/$namespace_one/ns/net" ip link add pair0 type veth peer name pair0 netns "$namespace_other" || return
    fi
    local holder host=1
    for holder in "$namespace_one" "$namespace_other"; do
        nsenter --net="/proc/$holder/ns/net" sh -e <<EOF || return
        ip link set lo up
        ip address replace 192.0.2.$host/24 dev pair0
        ip address replace 2001:db8::$host/64 dev pair0 nodad
        ip link set pair0 mtu $1 up
EOF
        host=$((host + 1))
    done
    namespaces_mtu=$1
}

cleanup() {
    ((${#holders[@]} == 0)) || kill "${holders[@]}" 2>/dev/null || true
}
trap cleanup EXIT

nap() {
    read -r -t 0.02 <> <(:) || true
}

# Whether a TCP port of any address is being listened on, where the server is.
listening() {
    local hex
    hex=$(printf ':%04X' "$1")
    "${one_in[@]}" cat /proc/self/net/tcp /proc/self/net/tcp6 2>/dev/null |
        awk -v port="$hex" '$4 == "0A" && substr($2, length($2) - 4) == port { found = 1 } END { exit !found }'
}

# Addresses and a TCP port for the next pair: sets `one`, `other` and `port`. They are the same in every run, since what a fault plan does
# depends on them, unless other programs are in the network of this script.
next_addresses() {
    local own=0
    [[ ${XDG_RUNTIME_DIR:-} == /dev/shm/runtime ]] || own=$$   # scripts/isolated could make no network
    number=$((number + 1))
    port=$((20000 + (own * 37 + number) % 12000))
    local base="127.$((64 + own % 64)).$((number % 256))"
    case $where in
    shared) one=$base.1 other=$base.1 ;;
    two) one=$base.1 other=$base.2 ;;
    esac
}

# unmeasured FILE...: whether perftest gave up because it could not measure the processor's clock. It does so before it reports, on a
# machine whose processors are wanted by other programs; what it was to test has happened by then.
unmeasured() {
    grep -q "^Correlation coefficient .* < 0.9" "$@"
}

# pair WANTED COMMAND...: the server, then the client; both must succeed and the client print WANTED.
# Sets `result` to the client's last line with it.
pair() {
    local wanted=$1 name="${*:2}" server port status=0 server_status=0
    shift
    [[ -z ${PUMICE_ACCEPT_SHARED:-} ]] || place shared
    next_addresses
    name="$where: $name"
    local out="$logs/$number"
    # Without a function between, so that the number is timeout's, which hands signals on.
    "${one_in[@]}" timeout "$limit_seconds" "$pumice" run --addr "$one" --log warn -- "$@" -p "$port" >"$out.server" 2>&1 &
    server=$!
    until listening "$port" || ! kill -0 "$server" 2>/dev/null; do nap; done
    "${other_in[@]}" timeout "$limit_seconds" "$pumice" run --addr "$other" --log warn -- "$@" -p "$port" "$meet" \
        >"$out.client" 2>&1 || status=$?
    # A server whose client gave up waits in vain.
    [[ $status == 0 ]] || kill "$server" 2>/dev/null || true
    wait "$server" || server_status=$?
    [[ $server_status == 0 ]] || status="$status, server $server_status"
    result=$(grep -E -- "$wanted" "$out.client" | tail -n 1 || true)
    if [[ $status == 0 && -n $result ]]; then
        pass "$name   $(tr -s ' \t' ' ' <<<"$result")"
    elif unmeasured "$out.server" "$out.client"; then
        skip "$name" "perftest could not measure the processor's clock: the machine is busy"
    else
        fail "$name (status $status)" "$out.server" "$out.client"
    fi
}

finish() {
    printf '%d passed, %d failed, %d skipped in %d s; what they printed: %s\n' \
        "$passed" "$failed" "$skipped" "$((SECONDS - begun))" "$logs"
    ((failed == 0))
}
