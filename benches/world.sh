#!/usr/bin/env bash
# What a world costs (docs/world.md): the processor time of both ends of ib_write_bw with 1 MiB and of ib_send_lat with 8 bytes in
# "pumice world", divided by that of the same run under "pumice run", the beginning of the programs included; and how long a run
# that mostly sleeps takes.
#
#   benches/world.sh                  a table: medians of five rounds in which both take turns, and ratios
#   benches/world.sh --rounds N       of N rounds
#   benches/world.sh --goals          and PASS or FAIL: at most 3 times, at most 10 times, and less than the time that is slept
#   benches/world.sh --quick          one round of short runs: only whether each row works; the figures mean nothing
#   benches/world.sh --built FOLDER   with the pumice and libpumice.so in this folder, instead of building them
#
# Exits with 0 if each row could be measured and, with --goals, the goals are met. Needs perftest, and Linux on x86-64.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
    printf 'world.sh: %s; usage: benches/world.sh [--rounds N] [--goals | --quick] [--built FOLDER]\n' "$1" >&2
    exit 2
}
rounds=5 quick='' goals='' built=''
while (($# > 0)); do
    case $1 in
    --quick) quick=yes rounds=1 ;;
    --goals) goals=yes ;;
    --rounds)
        [[ ${2:-} =~ ^[1-9][0-9]{0,2}$ ]] || usage '--rounds wants a number from 1 to 999'
        rounds=$2 && shift
        ;;
    --built)
        [[ -x ${2:-}/pumice ]] || usage '--built wants a folder with pumice and libpumice.so'
        built=$(realpath "$2") && shift
        ;;
    *) usage "unknown option '$1'" ;;
    esac
    shift
done
[[ -z $quick || -z $goals ]] || usage '--goals needs whole runs, --quick makes short ones'
for program in ib_write_bw ib_send_lat; do
    command -v "$program" >/dev/null || { echo "world.sh: $program is not installed: apt-get install perftest" >&2 && exit 1; }
done
# Before a build makes the machine busy.
read -r load_before _ </proc/loadavg
folder=$(mktemp -d "${TMPDIR:-/tmp}/world.XXXXXX")
trap 'rm -rf "$folder"' EXIT
if [[ -z $built ]]; then
    scripts/build-release
    built=$(realpath "${CARGO_TARGET_DIR:-target}")/release
fi

# Server and client; the server is first. The files of the run are none of the machine's.
# shellcheck disable=SC2016
pair='"$@" >server 2>&1 & sleep 0.2; "$@" 127.0.0.1 >client 2>&1 && wait'
mkdir -m 700 "$folder/runtime" "$folder/files"
export XDG_RUNTIME_DIR="$folder/runtime"
failed=0

# take KEY COMMAND...: the processor time and the real time of a run, in s, in the files of this key.
take() {
    local key=$1 times
    shift
    local TIMEFORMAT='%U %S %R'
    if times=$({ time timeout 300 "$@" >"$folder/output" 2>&1; } 2>&1) && [[ $times =~ ^[0-9.\ ]+$ ]]; then
        awk '{ print $1 + $2 }' <<<"$times" >>"$folder/processor.$key"
        awk '{ print $3 }' <<<"$times" >>"$folder/real.$key"
    else
        failed=$((failed + 1))
        printf 'FAIL  %s: %s\n' "$key" "$(tail -n 3 "$folder/output")" >&2
    fi
}

bytes=5000 messages=10000
[[ -z $quick ]] || bytes=20 messages=100
# measure KEY MODE PROGRAM...
measure() {
    take "$1.$2" "$built/pumice" "$2" --addr 127.0.0.1 -- sh -c "$pair" sh "${@:3}"
}
cd "$folder/files"
for ((round = 0; round < rounds; round++)); do
    for mode in run world; do
        measure bandwidth $mode ib_write_bw -s 1048576 -n "$bytes"
        measure latency $mode ib_send_lat -s 8 -n "$messages"
        # What a run costs whose messages are few: the beginning and the end of the programs.
        measure start $mode ib_send_lat -s 8 -n 100
    done
    take sleeps.world "$built/pumice" world -- sh -c 'for i in 1 2 3 4 5; do sleep 4; done'
done

median() {
    sort -g | awk '{ of[NR] = $1 } END { if (NR > 0) printf "%.6g\n", of[int((NR + 1) / 2)] }'
}
of() {
    [[ -e $folder/$1 ]] && median <"$folder/$1" || echo 0
}
# ratio KEY: the median of the ratios of each round.
ratio() {
    paste -d ' ' "$folder/processor.$1.world" "$folder/processor.$1.run" 2>"$folder/error" |
        awk 'NF == 2 && $2 > 0 { print $1 / $2 }' | median
}
row() {
    awk -v name="$2" -v plain="$(of "processor.$1.run")" -v world="$(of "processor.$1.world")" -v ratio="$(ratio "$1")" \
        'BEGIN { printf "%-48s %9.2f s %9.2f s %8.1f\n", name, plain, world, ratio }'
}

model=$(sed -n 's/^model name[[:space:]]*: //p' /proc/cpuinfo | head -n 1)
printf 'processor time in a world and without: %s, %d processors, Linux %s; rounds: %d; figures are medians\n' \
    "${model:-unknown processor}" "$(nproc)" "$(uname -r)" "$rounds"
[[ -z $quick ]] || echo 'SHORT RUNS: they show that each row works; the figures mean nothing'
! awk -v load="$load_before" 'BEGIN { exit !(load > 1) }' || echo "BUSY MACHINE: its load was $load_before before this began"
printf '\n%-48s %11s %11s %8s\n' '' plain world ratio
row bandwidth "ib_write_bw, $bytes times 1 MiB"
row latency "ib_send_lat, $messages times 8 bytes"
row start 'ib_send_lat, 100 times 8 bytes'
printf '%-48s %9.2f s %9.2f s\n' 'real time of a run that sleeps for 20 s' 20 "$(of real.sleeps.world)"

if [[ -n $goals ]]; then
    echo
    goal() {
        if awk -v found="${2:-0}" -v most="$3" 'BEGIN { exit !(found > 0 && found <= most) }'; then
            echo "PASS  $1: $2, wanted at most $3"
        else
            echo "FAIL  $1: ${2:-not measured}, wanted at most $3"
            failed=$((failed + 1))
        fi
    }
    goal 'ib_write_bw, 1 MiB, ratio' "$(ratio bandwidth)" 3
    goal 'ib_send_lat, 8 bytes, ratio' "$(ratio latency)" 10
    goal 'a run that sleeps for 20 s, s' "$(of real.sleeps.world)" 10
fi
exit $((failed > 0))
