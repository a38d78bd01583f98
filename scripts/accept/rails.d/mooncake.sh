# Mooncake's transfer engine (PyPI's wheel) on four rails: it discovers them, it uses all of them, and one of them is cut in the
# middle of a transfer of 1 GiB. Sourced by rails.
# shellcheck shell=bash

wheels=$target_dir/accept-wheels
transfers_python=$wheels/transfers/bin/python
gibibyte=$((1 << 30))

# As scripts/accept/wheels has it: the packages are kept.
have_transfers() {
    [[ -e $wheels/transfers/complete ]] && return
    command -v python3 >/dev/null || return
    rm -rf "$wheels/transfers"
    mkdir -p "$wheels"
    python3 -m venv "$wheels/transfers" >"$wheels/log" 2>&1 &&
        timeout 600 "$transfers_python" -m pip install --no-deps --only-binary :all: \
            numpy mooncake-transfer-engine-non-cuda nixl-cu12 >>"$wheels/log" 2>&1 &&
        touch "$wheels/transfers/complete"
}

# mooncake NAME [OPTIONS...]: 1 GiB from one process to another, with these options of pumice for the one that sends. Sets
# `mooncake_log` and `rails_sent`, the bytes that each device has sent, in words.
mooncake() {
    local name=$1 folder status=0 target target_status=0 device
    shift
    next_addresses
    folder=$logs/mooncake-$number
    rm -rf "$folder"
    mkdir -p "$folder"
    mooncake_log=$logs/$number
    timeout $((2 * limit_seconds)) "$pumice" run --addr "$one" --log warn -- "$transfers_python" scripts/accept/rails.d/mooncake_rails.py \
        target "$folder" "$gibibyte" >"$mooncake_log.target" 2>&1 &
    target=$!
    timeout $((2 * limit_seconds)) "$pumice" run --addr "$one" --log warn "$@" -- "$transfers_python" \
        scripts/accept/rails.d/mooncake_rails.py initiator "$folder" "$gibibyte" >"$mooncake_log.initiator" 2>&1 || status=$?
    [[ $status == 0 ]] || kill "$target" 2>/dev/null || true
    wait "$target" || target_status=$?
    rails_sent=()
    for device in 0 1 2 3; do rails_sent+=("$(sent "pumice$device")"); done
    if [[ $status != 0 || $target_status != 0 ]] ||
        ! grep -q "^verified $gibibyte bytes" "$mooncake_log.target" || ! grep -q "^verified " "$mooncake_log.initiator" ||
        [[ $(grep -c '^topology pumice0 pumice1 pumice2 pumice3$' "$mooncake_log.initiator") != 1 ]]; then
        fail "$name (status $status, target $target_status)" "$mooncake_log.target" "$mooncake_log.initiator"
        return 1
    fi
}

# incident KIND FIELDS...: on pumice1 at its fourth request. The transfer completes, and every byte is as it should be. A device
# whose address moved goes on; what another one did not carry, the three others did. After a cable was out for a second either may be.
incident() {
    local kind=$1 name="Mooncake, $* on one rail in the middle of 1 GiB" others carried
    mooncake "$name" --fault "event kind=$* device=pumice1 message=3" || return 0
    others=$((rails_sent[0] + rails_sent[2] + rails_sent[3])) carried=${rails_sent[1]}
    if ! grep -q "has $kind .*happen before write\|has $kind happen before write" "$mooncake_log.initiator"; then
        fail "$name: it did not happen" "$mooncake_log.initiator"
    elif [[ $kind == cable-pull ]] || { [[ $kind == gid-move ]] && ((carried >= gibibyte / 10)); }; then
        pass "$name   every byte as it should be; the devices sent ${rails_sent[*]} bytes"
    elif [[ $kind == port-down || $kind == unplug ]] && ((carried < gibibyte / 10 && others >= gibibyte * 9 / 10)); then
        pass "$name   every byte as it should be; the devices sent ${rails_sent[*]} bytes"
    else
        printf 'the devices sent %s bytes\n' "${rails_sent[*]}" >"$logs/incident"
        fail "$name: not by the devices that it should be" "$logs/incident"
    fi
}

if have_transfers; then
    name='Mooncake, 1 GiB over four rails that it discovers'
    if mooncake "$name"; then
        least=$(printf '%s\n' "${rails_sent[@]}" | sort -n | head -n 1)
        if ((least >= gibibyte / 10)); then
            pass "$name   every byte as it should be; the devices sent ${rails_sent[*]} bytes"
        else
            printf 'the devices sent %s bytes\n' "${rails_sent[*]}" >"$logs/used"
            fail "$name: not all were used" "$logs/used"
        fi
    fi
    incident port-down
    incident unplug
    incident gid-move to=5
    incident cable-pull time=1s
else
    skip 'Mooncake on four rails' "python3 with venv, and PyPI's wheels, are needed: see $wheels/log"
fi
