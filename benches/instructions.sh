#!/usr/bin/env bash
# How many instructions a message costs, post to completion, both ends: valgrind counts them, so that neither a busy machine nor
# a slow one changes the figures (docs/decisions/fast-path.md). benches/instructions/messages.c carries the messages, between two
# devices of one process and in one thread, through shared memory and by UDP. What the kernel does is not counted.
#
#   benches/instructions.sh                     a table: instructions, polls and readings of the clock for each message
#   benches/instructions.sh --against COMMIT    builds that commit as well, and exits with 1 if a message costs 3 % more than there
#   benches/instructions.sh --history           compares with the last line of benches/history in the same way; exits with 77 if that
#                                               line was made by another compiler, whose code is another one
#   benches/instructions.sh --line              the line of benches/history for this tree
#   benches/instructions.sh --budget KIND       where the instructions of one kind are (send-lat, write-lat, read-lat,
#                                               send-bw-l32, send-bw-l1, write-64k), and which lines of memory they touch
#   benches/instructions.sh --wire WIRE         only this medium: auto (shared memory) or udp
#   benches/instructions.sh --built FOLDER      with the libpumice.so in this folder, instead of building it
#
# The other commit is built below target/instructions, and stays there for the next time.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
    printf 'instructions.sh: %s; usage: benches/instructions.sh [--against COMMIT | --history | --line | --budget KIND] [--wire auto|udp] [--built FOLDER]\n' "$1" >&2
    exit 2
}
against='' history='' line='' budget='' wires='auto udp' built=''
while (($# > 0)); do
    case $1 in
    --against)
        against=$(git rev-parse --verify --quiet "${2:-}^{commit}") || usage "--against wants a commit, not '${2:-}'"
        shift
        ;;
    --history) history=yes ;;
    --line) line=yes ;;
    --budget)
        [[ -n ${2:-} ]] || usage '--budget wants a kind of message'
        budget=$2 && shift
        ;;
    --wire)
        [[ ${2:-} == auto || ${2:-} == udp ]] || usage '--wire wants auto or udp'
        wires=$2 && shift
        ;;
    --built)
        [[ -e ${2:-}/libpumice.so ]] || usage '--built wants a folder with libpumice.so'
        built=$(realpath "$2") && shift
        ;;
    *) usage "unknown option '$1'" ;;
    esac
    shift
done
compiler=rustc-$(rustc --version | awk '{ print $2 }')
if [[ -n $history ]]; then
    last=$(grep -v '^#' benches/history | tail -n 1)
    read -r _ commit made_by counts <<<"$last"
    if [[ $made_by != "$compiler" ]]; then
        echo "the last line of benches/history was made by $made_by, and this is $compiler: --against compares with a commit"
        exit 77
    fi
fi
for program in valgrind cc; do
    command -v "$program" >/dev/null || { echo "instructions.sh: $program is not installed: apt-get install valgrind gcc" >&2 && exit 1; }
done
[[ -f /usr/include/infiniband/verbs.h ]] || { echo 'instructions.sh: verbs.h is missing: apt-get install libibverbs-dev' >&2 && exit 1; }

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
work=$target/instructions
mkdir -p "$work"
# build TREE TARGET: the release library as packages have it (scripts/build-release), with lines for the budget. Prints its folder.
build() {
    CARGO_TARGET_DIR=$2 CARGO_PROFILE_RELEASE_DEBUG=line-tables-only CARGO_PROFILE_RELEASE_STRIP=none CARGO_PROFILE_RELEASE_LTO=fat \
        cargo rustc --quiet --release --manifest-path "$1/Cargo.toml" --lib --crate-type cdylib -p pumice-capi >&2
    printf '%s\n' "$2/release"
}
# prepare FOLDER: the program on the libpumice.so there. Prints the folder that it is in.
prepare() {
    local at
    at=$(mktemp -d "$work/run.XXXXXX")
    ln -s "$1/libpumice.so" "$at/libibverbs.so.1"
    ln -s libibverbs.so.1 "$at/libibverbs.so"
    # Its own addresses, which the reader of a trace looks for; its clock_gettime is that of the library as well.
    cc -std=gnu11 -O2 -g -pthread -Wall -no-pie -rdynamic -o "$at/messages" benches/instructions/messages.c -L "$at" -libverbs -ldl
    printf '%s\n' "$at"
}
# on FOLDER WIRE COMMAND...: in a network and a runtime folder of its own. Valgrind counts each byte of a copy by one instruction
# (rep movsb) as an instruction, so copies are made otherwise here.
on() {
    env LD_LIBRARY_PATH="$1" PUMICE_DEVICES=2 PUMICE_ADDR=127.93.7.1,127.93.7.2 PUMICE_WIRE="$2" PUMICE_LOG=warn \
        GLIBC_TUNABLES=glibc.cpu.x86_rep_movsb_threshold=0x10000000 \
        scripts/isolated "${@:3}"
}
# count FOLDER WIRE: "WIRE KIND INSTRUCTIONS POLLS READINGS" for each kind of message: the window with the fewest.
windows=2 rounds=200
count() {
    local at=$1 wire=$2 kind messages polls readings number=0 total
    rm -f "$at"/counted.*
    on "$at" "$wire" valgrind --quiet --tool=callgrind --callgrind-out-file="$at/counted.%p" --toggle-collect=measured \
        --dump-after=measured "$at/messages" "$windows" "$rounds" >"$at/printed" 2>"$at/log" || { cat "$at/log" >&2 && return 1; }
    while read -r kind messages polls readings; do
        number=$((number + 1))
        total=$(sed -n 's/^\(totals\|summary\): //p' "$at"/counted.*."$number" | head -n 1)
        awk -v kind="$kind" -v wire="$wire" -v total="${total:-0}" -v messages="$messages" -v polls="$polls" -v readings="$readings" \
            'BEGIN { printf "%s %s %.1f %.2f %.2f\n", wire, kind, total / messages, polls / messages, readings / messages }'
    done <"$at/printed" | awk '!($2 in least) || $3 < least[$2] { if (!($2 in least)) order[++kinds] = $2; least[$2] = $3; of[$2] = $0 }
        END { for (each = 1; each <= kinds; each++) print of[order[each]] }'
}
trap 'rm -rf "$work"/run.*' EXIT

[[ -n $built ]] || built=$(build . "$target")
here=$(prepare "$built")
if [[ -n $budget ]]; then
    for wire in $wires; do
        # The trace is many gigabytes long, and is read as it comes.
        on "$here" "$wire" valgrind --quiet --tool=lackey --trace-mem=yes --log-fd=9 "$here/messages" trace "$budget" 16 \
            9>&1 >"$here/printed" | python3 benches/instructions/budget.py "$here/messages" "$here/printed" \
            "$work/detail.$budget.$wire"
        echo "functions and lines of source: $work/detail.$budget.$wire"
    done
    exit
fi
for wire in $wires; do count "$here" "$wire"; done >"$here/now"
name() { if [[ $1 == auto ]]; then echo 'shared memory'; else echo UDP; fi; }
if [[ -n $line ]]; then
    printf '%s %s %s' "$(git log -1 --format=%cs)" "$(git rev-parse --short=8 HEAD)" "$compiler"
    awk '{ printf " %s/%s=%.0f", $1, $2, $3 } END { print "" }' "$here/now"
elif [[ -z $against$history ]]; then
    printf '%-14s %-12s %13s %7s %9s\n' medium message instructions polls 'clock'
    while read -r wire kind count polls readings; do
        printf '%-14s %-12s %13.0f %7.2f %9.2f\n' "$(name "$wire")" "$kind" "$count" "$polls" "$readings"
    done <"$here/now"
else
    if [[ -n $history ]]; then
        # "auto/send-lat=8528" for each kind.
        tr ' ' '\n' <<<"$counts" | awk -F '[/=]' -v wires=" $wires " 'index(wires, " " $1 " ") { print $1, $2, $3, 0, 0 }' >"$here/there"
    else
        commit=${against:0:8} tree=$work/$against
        [[ -d $tree/src ]] || { mkdir -p "$tree" && git archive "$against" | tar -x -C "$tree"; }
        there=$(prepare "$(build "$tree" "$tree/target")")
        for wire in $wires; do count "$there" "$wire"; done >"$here/there"
    fi
    printf '%-14s %-12s %13s %13s %8s\n' medium message "at $commit" here change
    failed=0
    while read -r wire kind before count; do
        change=$(awk -v before="$before" -v now="$count" 'BEGIN { printf "%.2f", 100 * (now / before - 1) }')
        verdict=''
        ! awk -v change="$change" 'BEGIN { exit !(change > 3) }' || { verdict='  MORE THAN 3 % WORSE' && failed=1; }
        printf '%-14s %-12s %13.0f %13.0f %+7.1f%%%s\n' "$(name "$wire")" "$kind" "$before" "$count" "$change" "$verdict"
    done < <(awk 'NR == FNR { before[$1 " " $2] = $3; next } ($1 " " $2) in before { print $1, $2, before[$1 " " $2], $3 }' \
        "$here/there" "$here/now")
    ((failed == 0)) || echo 'docs/decisions/fast-path.md says what to do' >&2
    exit $failed
fi
