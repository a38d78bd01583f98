# Inside the virtual machine of scripts/rxe-lab, as root: what the scenarios of scripts/accept/rxe are made of.
# The shared folder has pumice's programs in bin/ and libraries in lib/; what programs print is left in out/.
# Sourced by run.sh.
# shellcheck shell=bash

limit_seconds=${limit_seconds:-240}
passed=0
failed=0
skipped=0
number=0

rxe_address=10.9.0.1
pumice_address=10.9.0.2
rxe_v6=fd00:9::1
pumice_v6=fd00:9::2

# From the memory of this machine: programs start faster than from the host's folder.
install_programs() {
    mkdir -p /tmp/pumice /share/out
    cp /share/bin/* /share/lib/* /tmp/pumice/
    chmod -R a+rX /tmp/pumice
}

interop=/tmp/pumice/interop

# network WHICH: as lab-network makes it, once.
networks=
network() {
    [[ $networks != *" $1 "* ]] || return 0
    networks+=" $1 "
    lab-network "$1"
}

# What both of an rxe pair run as, and what pumice runs as: an ordinary user without any capability, in a network namespace.
on_rxe() { timeout "$limit_seconds" "$@"; }
# pumice_in NAMESPACE ADDRESS COMMAND...
pumice_in() {
    local namespace=$1 address=$2
    shift 2
    ip netns exec "$namespace" setpriv --reuid=1000 --regid=1000 --clear-groups --no-new-privs --bounding-set=-all \
        --inh-caps=-all env HOME=/tmp timeout "$limit_seconds" \
        /tmp/pumice/pumice run --addr "$address" --log warn -- "$@"
}
on_left() { pumice_in left 10.9.2.1 "$@"; }
on_right() { pumice_in right 10.9.2.2 "$@"; }
on_pumice() { pumice_in peer "${pumice_at:-$pumice_address}" "$@"; }

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

# unjudged COMMAND...: scenarios that are only a part of one, which judges itself. What they print is in /tmp/unjudged.
unjudged() {
    local before=("$passed" "$failed" "$skipped")
    "$@" >/tmp/unjudged 2>&1
    passed=${before[0]} failed=${before[1]} skipped=${before[2]}
    ! grep -q '^FAIL' /tmp/unjudged
}

# namespace_of WHICH: empty for rxe, which is in the machine's own.
namespace_of() {
    case $1 in
    pumice) echo peer ;;
    left | right) echo "$1" ;;
    esac
}

# listening WHICH PORT: whether a process of that side listens.
listening() {
    local hex namespace in=()
    namespace=$(namespace_of "$1")
    [[ -z $namespace ]] || in=(ip netns exec "$namespace")
    printf -v hex ':%04X ' "$2"
    "${in[@]}" grep -q "$hex.* 0A " /proc/net/tcp /proc/net/tcp6
}

# judge_pair LABEL STATUS: of a server and a client, whose outputs begin with `out`; `result` is the line that was wanted.
judge_pair() {
    if [[ $2 == 0 && -n $result ]]; then
        pass "$1   $(tr -s ' \t' ' ' <<<"$result")"
    else
        fail "$1 (status $2; $out)" "$out.server" "$out.client"
    fi
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
    local address
    address=$(address_of "$server")
    side "$server" "$@" -p "$port" >"$out.server" 2>&1 &
    process=$!
    until listening "$server" "$port" || ! kill -0 "$process" 2>/dev/null; do sleep 0.1; done
    side "$client" "$@" -p "$port" "$address" >"$out.client" 2>&1 || status=$?
    # A server whose client has failed would wait until its time is up.
    ((status == 0)) || kill "$process" 2>/dev/null
    wait "$process" || status="$status, server $?"
    result=$(grep -E -- "$wanted" "$out.client" | tail -n 1)
    local label="$server < $client  $name${weather_name:+, $weather_name}"
    judge_pair "$label" "$status"
}

# checked SERVER CLIENT SCENARIO,... OPTION...: of tests/interop, a line for each.
checked() {
    local server=$1 client=$2 scenarios=$3 process port out how name figures seen=""
    shift 3
    number=$((number + 1))
    port=$((20000 + number))
    out=/share/out/$number
    local address
    address=$(address_of "$server")
    side "$server" "$interop" -d @DEVICE -g @GID "$@" -p "$port" >"$out.server" 2>&1 &
    process=$!
    until listening "$server" "$port" || ! kill -0 "$process" 2>/dev/null; do sleep 0.1; done
    side "$client" "$interop" -d @DEVICE -g @GID "$@" -p "$port" -s "$scenarios" "$address" >"$out.client" 2>"$out.errors"
    wait "$process"
    while read -r how name figures; do
        seen+=",$name,"
        local label="$server < $client  ${name}${*:+ $*}${v6:+, IPv6}${weather_name:+, $weather_name}"
        case $how in
        ok) pass "$label   $figures" ;;
        skip) skip "$label" "${figures%%;*}" ;;
        *) fail "$label ($out)" "$out.errors" "$out.server" ;;
        esac
    done <"$out.client"
    # A side that hung or died has no lines for what should have come after.
    for name in ${scenarios//,/ }; do
        [[ $seen == *",$name,"* ]] || fail "$server < $client  $name was not run ($out)" "$out.errors" "$out.server"
    done
}

# Where the server of a side is reached.
address_of() {
    case $1 in
    rxe) echo "$rxe_address" ;;
    rxe1) echo 10.9.1.1 ;;
    left) echo 10.9.2.1 ;;
    *) echo "$pumice_address" ;;
    esac
}

# side WHICH COMMAND...: WHICH is rxe or pumice, on the two ends of one wire, or rxe1 or rxe2, on those of another; left
# or right is pumice on those of a third.
side() {
    local which=$1 device gid
    shift
    case $which in
    rxe)
        device=rxe0
        gid=$rxe_gid
        [[ -z ${v6:-} ]] || gid=$rxe_gid6
        ;;
    rxe[12])
        device=$which
        gid=$(lab-network gid "$which" "10.9.1.${which#rxe}")
        which=rxe
        ;;
    pumice)
        device=pumice0
        gid=0
        [[ -z ${v6:-} ]] || local pumice_at=$pumice_v6
        ;;
    left | right)
        device=pumice0
        gid=0
        ;;
    esac
    local arguments=("${@//@DEVICE/$device}")
    "on_$which" "${arguments[@]//@GID/$gid}"
}

# both_ways WANTED NAME COMMAND...
both_ways() {
    between rxe pumice "$@"
    between pumice rxe "$@"
}

# What happens to RoCE packets on the way, in words of netem; what the two processes say over TCP is left alone.
#   weather w0 NETEM...   from rxe to pumice
#   weather w1 NETEM...   from pumice to rxe
#   weather fine
weather() {
    if [[ $1 == fine ]]; then
        tc qdisc del dev w0 root 2>/dev/null
        ip netns exec peer tc qdisc del dev w1 root 2>/dev/null
        return 0
    fi
    local interface=$1 in=()
    [[ $interface == w0 ]] || in=(ip netns exec peer)
    shift
    "${in[@]}" tc qdisc add dev "$interface" root handle 1: prio bands 4 priomap 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 &&
        "${in[@]}" tc qdisc add dev "$interface" parent 1:4 handle 40: netem "$@" limit 20000 &&
        "${in[@]}" tc filter add dev "$interface" parent 1: protocol ip u32 match ip protocol 17 0xff \
            match ip dport 4791 0xffff flowid 1:4
}

# damage w0|w1 OUT-OF: one byte of one in OUT-OF RoCE packets (batches) that leave by this interface changes, where the ICRC covers it
# and the UDP checksum, which the sender leaves to the hardware or leaves out, does not tell. `damage off` ends it.
damage() {
    if [[ $1 == off ]]; then
        tc qdisc del dev w0 clsact 2>/dev/null
        ip netns exec peer tc qdisc del dev w1 clsact 2>/dev/null
        return 0
    fi
    local interface=$1 in=()
    [[ $interface == w0 ]] || in=(ip netns exec peer)
    # Offsets count from the IP header: this byte is the twelfth behind the BTH. By chance and not by count: counted, rxe sent a
    # window of twice as many packets again and again, and the first of them was damaged each time.
    "${in[@]}" tc qdisc add dev "$interface" clsact &&
        "${in[@]}" tc filter add dev "$interface" egress protocol ip u32 match ip protocol 17 0xff \
            match ip dport 4791 0xffff action gact ok random netrand pipe "$2" action pedit munge offset 51 u8 invert
}

# record NAME COMMAND...: with the RoCE packets at rxe's interface (pumice's with `at_pumice`) in out/NAME.pcap.
record() {
    local name=$1 in=() interface=w0 recorder size=-1
    local file=/tmp/$1.pcap told=/tmp/$1.tcpdump
    [[ -z ${at_pumice:-} ]] || in=(ip netns exec peer) interface=w1
    shift
    : >"$told"
    "${in[@]}" tcpdump -i "$interface" -nn -U -B 32768 -w "$file" udp port 4791 2>"$told" &
    recorder=$!
    until grep -q 'listening on' "$told" || ! kill -0 "$recorder" 2>/dev/null; do sleep 0.1; done
    "$@"
    # When told to stop, tcpdump stops at once, and does not read the packets that still wait.
    while [[ $(stat -c %s "$file") != "$size" ]]; do
        size=$(stat -c %s "$file")
        sleep 1.5
    done
    kill -INT "$recorder"
    wait "$recorder"
    grep -q '^0 packets dropped by kernel' "$told" || printf '      | tcpdump: %s\n' "$(tail -n 1 "$told")"
    mv "$file" "/share/out/$name.pcap"
}

finish() {
    dmesg >/share/out/dmesg
    printf '%d passed, %d failed, %d skipped on Linux %s\n' "$passed" "$failed" "$skipped" "$(uname -r)"
    ((failed == 0))
}
