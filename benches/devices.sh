#!/usr/bin/env bash
# Whether threads that use different devices of one process hold each other up (docs/devices.md): messages of 8 bytes a second and
# the bandwidth of messages of 64 KiB, of one thread on one device, of two threads on two, and of 2 and 4 threads with queue
# pairs on one. Each thread has both ends, so that one needs one processor. Beside them what the machine itself allows: the same
# numbers of threads that compute, and that copy 64 KiB.
#
#   benches/devices.sh                  a table: medians of nine rounds in which everything takes turns, and ratios
#   benches/devices.sh --rounds N       of N rounds
#   benches/devices.sh --goals          and PASS or FAIL: two threads on two devices carry 1.8 times what one on one does
#   benches/devices.sh --quick          one round of short runs: only whether each row works; the figures mean nothing
#   benches/devices.sh --built FOLDER   with the pumice and libpumice.so in this folder, instead of building them
#   benches/devices.sh --wire udp       by UDP; by default through shared memory, as programs have it
#
# Exits with 0 if each row could be measured and, with --goals, the goal is met. The scheduler places the threads: give it a
# machine with idle processors, two at least.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
    printf 'devices.sh: %s; usage: benches/devices.sh [--rounds N] [--goals | --quick] [--wire auto|udp] [--built FOLDER]\n' "$1" >&2
    exit 2
}
rounds=9 seconds=1 quick='' goals='' built='' wire=auto
while (($# > 0)); do
    case $1 in
    --quick) quick=yes rounds=1 seconds=0.1 ;;
    --goals) goals=yes ;;
    --rounds)
        [[ ${2:-} =~ ^[1-9][0-9]{0,2}$ ]] || usage '--rounds wants a number from 1 to 999'
        rounds=$2 && shift
        ;;
    --wire)
        [[ ${2:-} == auto || ${2:-} == udp ]] || usage '--wire wants auto or udp'
        wire=$2 && shift
        ;;
    --built)
        [[ -x ${2:-}/pumice && -e ${2:-}/libpumice.so ]] || usage '--built wants a folder with pumice and libpumice.so'
        built=$(realpath "$2") && shift
        ;;
    *) usage "unknown option '$1'" ;;
    esac
    shift
done
[[ -z $quick || -z $goals ]] || usage '--goals needs whole runs, --quick makes short ones'
# Before a build makes the machine busy.
read -r load_before _ </proc/loadavg
folder=$(mktemp -d "${TMPDIR:-/tmp}/devices.XXXXXX")
trap 'rm -rf "$folder"' EXIT
if [[ -z $built ]]; then
    scripts/build-release
    built=$(realpath "${CARGO_TARGET_DIR:-target}")/release
fi
# The headers are the system's, the library is that of pumice.
ln -s "$built/libpumice.so" "$folder/libibverbs.so.1"
ln -s libibverbs.so.1 "$folder/libibverbs.so"
cc -std=gnu11 -O2 -Wall -o "$folder/rails" benches/devices/rails.c -L "$folder" -libverbs -pthread ||
    { echo 'devices.sh: benches/devices/rails.c needs a C compiler and verbs.h: apt-get install gcc libibverbs-dev' >&2 && exit 1; }

failed=0
# take KEY COMMAND...: a line with the figure in the file of this key; "-" if there is none.
take() {
    local value
    value=$("${@:2}" 2>"$folder/error") || {
        failed=$((failed + 1))
        printf 'FAIL  %s: %s\n' "$1" "$(tail -n 3 "$folder/error")" >&2
        value=-
    }
    echo "$value" >>"$folder/value.$1"
}

# write NAME SIZE LIST DEVICES THREADS
write() {
    local addresses="127.$((64 + $$ % 64)).7.1" each
    for ((each = 2; each <= $4; each++)); do addresses+=",127.$((64 + $$ % 64)).7.$each"; done
    take "$1.$4.$5" timeout 60 "$built/pumice" run --devices "$4" --addr "$addresses" --wire "$wire" --log warn -- \
        "$folder/rails" write "$2" "$3" "$4" "$5" "$seconds"
}

for ((round = 0; round < rounds; round++)); do
    for place in '1 1' '2 2' '1 2' '1 4'; do
        # shellcheck disable=SC2086
        write messages 8 32 $place
        # shellcheck disable=SC2086
        write bytes 65536 1 $place
    done
    for threads in 1 2; do
        take "spin.0.$threads" "$folder/rails" spin "$threads" "$seconds"
        take "copy.0.$threads" "$folder/rails" copy 65536 "$threads" "$seconds"
    done
done

median() {
    sort -g | awk '{ of[NR] = $1 } END { if (NR > 0) printf "%.6g\n", of[int((NR + 1) / 2)] }'
}
# ratio KEY KEY: the median of the ratios of each round.
ratio() {
    paste -d ' ' "$folder/value.$1" "$folder/value.$2" | awk '$1 != "-" && $2 != "-" && $2 > 0 { print $1 / $2 }' | median
}
# row KEY ONE SCALE UNIT NAME: its figure, and its ratio to that of one thread.
row() {
    local figure least most
    figure=$(grep -v '^-' "$folder/value.$1" | median || true)
    read -r least most < <(grep -v '^-' "$folder/value.$1" | sort -g | awk -v scale="$3" \
        'NR == 1 { least = $1 } { most = $1 } END { printf "%.3g %.3g\n", least * scale, most * scale }')
    printf '%-44s %9s %-4s  %7s to %-7s %6s\n' "$5" "$(awk -v value="${figure:-0}" -v scale="$3" 'BEGIN { printf "%.3g", value * scale }')" \
        "$4" "$least" "$most" "$(ratio "$1" "$2" | awk '{ printf "%.2f", $1 }')"
}

model=$(sed -n 's/^model name[[:space:]]*: //p' /proc/cpuinfo | head -n 1)
printf 'threads and devices of one process, --wire %s: %s, %d processors, Linux %s; rounds: %d; figures are medians\n' \
    "$wire" "${model:-unknown processor}" "$(nproc)" "$(uname -r)" "$rounds"
[[ -z $quick ]] || echo 'SHORT RUNS: they show that each row works; the figures mean nothing'
! awk -v load="$load_before" 'BEGIN { exit !(load > 1) }' || echo "BUSY MACHINE: its load was $load_before before this began"
(($(nproc) >= 2)) || echo 'ONE PROCESSOR: threads take turns on it'
printf '\n%-44s %9s %-4s  %18s %6s\n' '' median '' 'least to most' ratio
for kind in 'messages 1e-6 M/s messages of 8 bytes' 'bytes 6.5536e-5 GB/s messages of 64 KiB'; do
    read -r key scale unit name <<<"$kind"
    row "$key.1.1" "$key.1.1" "$scale" "$unit" "$name, 1 thread, 1 device"
    row "$key.2.2" "$key.1.1" "$scale" "$unit" "$name, 2 threads, 2 devices"
    row "$key.1.2" "$key.1.1" "$scale" "$unit" "$name, 2 threads, 1 device"
    row "$key.1.4" "$key.1.1" "$scale" "$unit" "$name, 4 threads, 1 device"
done
row spin.0.1 spin.0.1 1e-6 G/s 'steps of arithmetic, 1 thread, no device'
row spin.0.2 spin.0.1 1e-6 G/s 'steps of arithmetic, 2 threads, no device'
row copy.0.1 copy.0.1 6.5536e-5 GB/s 'memcpy of 64 KiB, 1 thread, no device'
row copy.0.2 copy.0.1 6.5536e-5 GB/s 'memcpy of 64 KiB, 2 threads, no device'

if [[ -n $goals ]]; then
    echo
    for key in messages bytes; do
        found=$(ratio "$key.2.2" "$key.1.1")
        if awk -v found="${found:-0}" 'BEGIN { exit !(found >= 1.8) }'; then
            echo "PASS  $key, two threads on two devices against one on one: $found, wanted at least 1.8"
        else
            echo "FAIL  $key, two threads on two devices against one on one: ${found:-not measured}, wanted at least 1.8"
            failed=$((failed + 1))
        fi
    done
fi
exit $((failed > 0))
