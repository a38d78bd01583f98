# Programs that connect by address: the server may not listen yet when its client asks.
# Sourced by the scenarios that have such programs.
# shellcheck shell=bash

# Nothing in /proc tells that a program listens for connections: a client that is too early is told so, and asks again.
asks_again=40
too_early='reject|refused|unreachable|unexpected CM event|connect error'
connection_port=7000

# connected SERVER CLIENT WANTED SERVER-COMMAND -- CLIENT-COMMAND: one of the two prints WANTED, and both end well. @SERVER is the
# server's address, @PORT a port of its own. `endless`: the server only ends when told to. `before_each_try`: a command. Sets `out`.
endless=
before_each_try=:
connected() {
    local server=$1 client=$2 wanted=$3 tries=0 status=0 process server_status=0 address words=() server_words=()
    shift 3
    number=$((number + 1))
    connection_port=$((connection_port + 1))
    address=$(address_of "$server")
    out=/share/out/$number
    words=("${@//@PORT/$connection_port}")
    words=("${words[@]//@SERVER/$address}")
    while [[ ${words[0]} != -- ]]; do
        server_words+=("${words[0]}")
        words=("${words[@]:1}")
    done
    words=("${words[@]:1}")
    side "$server" "${server_words[@]}" >"$out.server" 2>&1 &
    process=$!
    sleep "${head_start:-0}"
    while :; do
        status=0
        $before_each_try
        side "$client" "${words[@]}" >"$out.client" 2>&1 || status=$?
        [[ $status != 0 ]] && ((tries++ < asks_again)) && kill -0 "$process" 2>/dev/null || break
        grep -q -i -E "$too_early" "$out.client" || break
        sleep 0.2
    done
    if [[ $status != 0 || -n $endless ]]; then kill "$process" 2>/dev/null; fi
    wait "$process" || server_status=$?
    [[ -n $endless || $server_status == 0 ]] || status="$status, server $server_status"
    result=$(grep -h -E -- "$wanted" "$out.client" "$out.server" | tail -n 1)
    local label="$server < $client  ${words[*]}"
    judge_pair "$label" "$status"
}

# both WANTED SERVER-COMMAND -- CLIENT-COMMAND: both ways.
both() {
    connected rxe pumice "$@"
    connected pumice rxe "$@"
}
