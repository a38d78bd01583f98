# NIXL (PyPI's wheel, with the UCX that it brings) on two rails: a READ and a WRITE of 8 MiB in 64 pieces, every byte compared,
# alone and while something happens to one rail of the initiator. Sourced by rails, after mooncake.sh, which has the packages.
# shellcheck shell=bash

# nixl [OPTIONS...]: one run, with these options of pumice for the initiator. Sets `out`, `status` and `target_status`.
nixl() {
    next_addresses
    out=$logs/$number status=0 target_status=0
    local words=(env UCX_TLS=rc_v,self UCX_NET_DEVICES=pumice0:1,pumice1:1 UCX_RC_TIMEOUT=100ms UCX_WARN_UNUSED_ENV_VARS=n
        "$transfers_python" scripts/accept/wheels.d/nixl_pair.py)
    timeout $((2 * limit_seconds)) "$pumice" run --addr "$one" --log warn -- "${words[@]}" target 127.0.0.1 "$port" >"$out.target" 2>&1 &
    target=$!
    until listening "$port" || ! kill -0 "$target" 2>/dev/null; do nap; done
    timeout $((2 * limit_seconds)) "$pumice" run --addr "$one" --log warn "$@" -- "${words[@]}" initiator 127.0.0.1 "$port" \
        >"$out.initiator" 2>&1 || status=$?
    # The target would wait for the WRITE.
    [[ $status == 0 ]] || kill "$target" 2>/dev/null || true
    wait "$target" 2>/dev/null || target_status=$?
}

# nixl_carries NAME INCIDENT [OPTIONS...]: it verifies all bytes, and both rails carried about half of the 16 MiB.
nixl_carries() {
    local name=$1 first second
    nixl "${@:3}"
    first=$(sent pumice0) second=$(sent pumice1)
    if [[ $status == 0 && $target_status == 0 ]] && grep -q '^verified' "$out.target" && grep -q '^verified' "$out.initiator" &&
        { [[ -z $2 ]] || grep -q "has $2 .*happen before read of message 30" "$out.initiator"; } &&
        ((first >= 6 << 20 && second >= 6 << 20)); then
        pass "$name   every byte as it should be; the devices sent $first and $second bytes"
    else
        printf 'pumice0 sent %d bytes, pumice1 %d\n' "$first" "$second" >"$out.rails"
        fail "$name (status $status, target $target_status)" "$out.target" "$out.initiator" "$out.rails"
    fi
}

# nixl_fails KIND: for longer than the device repeats. NIXL says so to the program: the transfer ends with an error.
nixl_fails() {
    local name="NIXL over two rails, $1 on one of them: the transfer fails"
    nixl --fault "event kind=$1 device=pumice1 message=30"
    if [[ $status == 1 ]] && grep -q 'NIXL_ERR_REMOTE_DISCONNECT' "$out.initiator" && grep -q 'RETRY_EXC_ERR' "$out.initiator"; then
        pass "$name   NIXL_ERR_REMOTE_DISCONNECT"
    else
        fail "$name (status $status, target $target_status)" "$out.initiator"
    fi
}

if have_transfers; then
    nixl_carries 'NIXL over two rails' ''
    nixl_carries 'NIXL over two rails, port-down for 300 ms on one of them' port-down \
        --fault 'event kind=port-down device=pumice1 message=30 time=300ms'
    nixl_carries 'NIXL over two rails, cable-pull for 300 ms on one of them' cable-pull \
        --fault 'event kind=cable-pull device=pumice1 message=30 time=300ms'
    nixl_fails port-down
    nixl_fails cable-pull
else
    skip 'NIXL on two rails' "python3 with venv, and PyPI's wheels, are needed: see $wheels/log"
fi
