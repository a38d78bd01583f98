#!/usr/bin/env bash
# The steps of the action, which any other runner can take, too (docs/ci.md).
#
#   pumice.sh install   unpacks pumice, and puts it into the PATH of later steps: INPUT_VERSION, or the tar file INPUT_ARCHIVE
#   pumice.sh run       runs the commands in INPUT_RUN; captures, traces and reports of faults go to the folder REPORTS
#                       with INPUT_CHECK=true findings of pumice check as well, which are annotations and fail it
#   pumice.sh report    makes pages of the traces if OUTCOME is "failure", and writes a summary
#
# GitHub sets RUNNER_TEMP, GITHUB_PATH, GITHUB_OUTPUT, GITHUB_STEP_SUMMARY and GITHUB_WORKSPACE; without them there is a folder in
# /tmp, and no summary.
set -euo pipefail

repository=https://github.com/pumice-rdma/pumice
place=${RUNNER_TEMP:-/tmp}/pumice
reports=${REPORTS:-$place/reports}

fail() {
    printf '::error title=pumice::%s\n' "$1"
    exit 1
}

install_pumice() {
    local machine archive=${INPUT_ARCHIVE:-} version=${INPUT_VERSION:-latest} begun=$SECONDS
    machine=$(uname -m)
    case $machine in
    x86_64 | aarch64) ;;
    *) fail "there is no release for $machine: build pumice from its source, and name the archive of scripts/package tar as the input archive" ;;
    esac
    mkdir -p "$place/installed" "$reports"
    chmod 700 "$place"
    if [[ -z $archive ]]; then
        local from=$repository/releases
        if [[ $version == latest ]]; then
            version=$(curl -fsSLI -o /dev/null -w '%{url_effective}' "$from/latest" | sed 's/.*\/v//') ||
                fail "the number of the latest release cannot be read from $from/latest: name a version"
        fi
        archive=$place/pumice-$version-$machine.tar.gz
        local name=${archive##*/} file
        for file in "$name" "$name.sha256"; do
            curl -fsSL --retry 3 -o "$place/$file" "$from/download/v$version/$file" ||
                fail "$from/download/v$version/$file cannot be read: is there a release $version?"
        done
        (cd "$place" && sha256sum --check --status "$name.sha256") || fail "$name is not what the release says"
    fi
    tar -xzf "$archive" --strip-components=1 -C "$place/installed" || fail "$archive cannot be unpacked"
    [[ -x $place/installed/bin/pumice ]] || fail "$archive has no bin/pumice"
    printf '%s\n' "$place/installed/bin" >>"${GITHUB_PATH:-/dev/null}"
    printf 'reports=%s\n' "$reports" >>"${GITHUB_OUTPUT:-/dev/null}"
    "$place/installed/bin/pumice" -V
    # What would keep programs from the device is better said here than by each program.
    "$place/installed/bin/pumice" doctor >"$reports/doctor.txt" || {
        cat "$reports/doctor.txt"
        fail 'the device does not work on this runner: see above for the remedy'
    }
    printf 'installed in %d s\n' "$((SECONDS - begun))"
}

run_commands() {
    mkdir -p "$reports"
    export PATH=$place/installed/bin:$PATH
    export PUMICE_CAPTURE=$reports/%p.pcapng PUMICE_TRACE=$reports/%p.trace PUMICE_FAULT_REPORT=$reports/%p.faults
    export PUMICE_LOG=${PUMICE_LOG:-warn} PUMICE_WIRE=${INPUT_WIRE:-auto}
    [[ -z ${INPUT_FAULTS:-} ]] || export PUMICE_FAULTS=$INPUT_FAULTS
    [[ -z ${INPUT_SEED:-} ]] || export PUMICE_SEED=$INPUT_SEED
    if [[ ${INPUT_CHECK:-} == true ]]; then
        export PUMICE_CHECK=${PUMICE_CHECK:-1} PUMICE_CHECK_REPORT=$reports/%p.findings PUMICE_CHECK_FORMAT=text
    fi
    local status=0
    bash -euo pipefail -c "$INPUT_RUN" || status=$?
    annotate
    if ((status == 0)) && compgen -G "$reports/*.findings" >/dev/null && [[ -n $(found) ]]; then
        printf '%s\n' 'the commands succeed, and pumice check has found something: see the annotations'
        return 3
    fi
    return "$status"
}

# found: a line "FILE LINE KIND SENTENCE", with tabs between, for each finding; without a file where its place is not known. The
# first frame behind the headline is the place.
found() {
    awk '
        function tell() { if (kind != "") printf "%s\t%s\t%s\t%s\n", file, line, kind, sentence; kind = "" }
        /^pumice check: |^[^ ]+ \([0-9]+\): / { tell(); next }
        /^[a-z][a-z-]*: / {
            tell(); kind = $1; sub(/:$/, "", kind); sentence = $0; sub(/^[^ ]* /, "", sentence); file = line = ""
            next
        }
        /^    .*\(.*:[0-9]+\)$/ && kind != "" && file == "" {
            file = $0; sub(/^.*\(/, "", file); sub(/\)$/, "", file); line = file; sub(/:[0-9]*$/, "", file); sub(/^.*:/, "", line)
        }
        END { tell() }' "$reports"/*.findings 2>/dev/null | sort -u
}

# annotate: tells GitHub each finding, at most the ten that it shows, with paths as the repository has them.
annotate() {
    local file line kind sentence
    while IFS=$'\x1f' read -r file line kind sentence; do
        file=${file#"${GITHUB_WORKSPACE:-$PWD}/"}
        printf '::error %stitle=pumice: %s::%s\n' "${file:+file=$file,line=$line,}" "$kind" "${sentence//%/%25}"
    done < <(found | head -n 10 | tr '\t' '\037')
}

# count FILE...: how many of the files are there.
count() {
    local file number=0
    for file; do [[ ! -f $file ]] || number=$((number + 1)); done
    printf '%d' "$number"
}

write_report() {
    export PATH=$place/installed/bin:$PATH
    local summary=${GITHUB_STEP_SUMMARY:-/dev/null} traces=("$reports"/*.trace) faults=("$reports"/*.faults)
    {
        printf '### pumice: %s\n\n' "${OUTCOME:-unknown}"
        printf '| | |\n|---|---|\n| Version | %s |\n' "$(pumice -V)"
        printf '| Processes with a capture | %d |\n' "$(count "$reports"/*.pcapng)"
        printf '| Reports of faults | %d |\n' "$(count "${faults[@]}")"
        printf '| Findings | %d |\n' "$(found | wc -l)"
    } >>"$summary"
    if [[ -n $(found) ]]; then
        {
            printf '\nWhat the programs do wrong with verbs:\n\n| Kind | Where | What |\n|---|---|---|\n'
            found | head -n 50 | sed "s|${GITHUB_WORKSPACE:-$PWD}/||; s/|/\\\\|/g" |
                awk -F '\t' '{ printf "| %s | %s | %s |\n", $3, $1 == "" ? "" : "`" $1 ":" $2 "`", $4 }'
        } >>"$summary"
    fi
    [[ ${OUTCOME:-} == failure ]] || return 0
    if [[ -f ${traces[0]} ]]; then
        pumice trace view "${traces[@]}" -o "$reports/trace.html" || true
        {
            printf '\nWhere the time of failed and slow messages went:\n\n```text\n'
            pumice trace why --slowest 3 "${traces[@]}" 2>&1 | head -c 20000 || true
            printf '```\n'
        } >>"$summary"
    fi
    if [[ -f ${faults[0]} ]]; then
        {
            printf '\nWhat the rules of the fault plan did:\n\n```text\n'
            pumice fault assert "${faults[@]}" 2>&1 | head -c 20000 || true
            printf '```\n\nThe same faults again: `pumice run --faults REPORT -- PROGRAM`, with a report of the artifact.\n'
        } >>"$summary"
    fi
    printf '\nThe artifact has the packets (`pumice capture`, Wireshark), the page `trace.html`, and the reports.\n' >>"$summary"
}

case ${1:-} in
install) install_pumice ;;
run) run_commands ;;
report) write_report ;;
*)
    printf 'usage: pumice.sh install | run | report\n' >&2
    exit 2
    ;;
esac
