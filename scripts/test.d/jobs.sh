# For scripts/test: stages, which run one after another, and jobs, of which several run at once. Here is counted what passed and
# failed, and what each took.
# Sourced. The file that sources it sets target_dir.
# shellcheck shell=bash

# What cargo test printed, of all stages.
log=$target_dir/test.log
# What each job prints, until it has ended.
jobs_dir=$target_dir/jobs
mkdir -p "$jobs_dir"
: >"$log"
skipped=()
failures=()
checks_passed=0
checks_failed=0

# Each stage or job and its seconds, for the table at the end.
times=()
stage=set-up
stage_began=0
stage() {
    times+=("$((SECONDS - stage_began)) $stage")
    stage=$1
    stage_began=$SECONDS
    printf '\n== %s ==\n' "$stage"
}

skip() {
    skipped+=("$1")
    printf 'SKIPPED: %s\n' "$1"
}

# Checks and programs of others wait for a part of their time, so there are more jobs than processors.
jobs_at_once=$(($(nproc) + 1))
# By process: the name of the job, and the function that counts what it did.
declare -A job_name=() job_count=() job_began=()

# begin COUNT NAME COMMAND...: a job, as soon as fewer than jobs_at_once run. At its end COUNT NAME STATUS OUTPUT is called. It is the first of a
# session, so that its processes can be ended together.
begin() {
    while ((${#job_name[@]} >= jobs_at_once)); do end_of_one; done
    setsid "${@:3}" >"$jobs_dir/${2//[\/ ]/-}.log" 2>&1 </dev/null &
    job_count[$!]=$1
    job_name[$!]=$2
    job_began[$!]=$SECONDS
}

# Waits until one of the jobs has ended, prints what it printed, and counts.
end_of_one() {
    local ended name count status=0
    wait -n -p ended "${!job_name[@]}" || status=$?
    name=${job_name[$ended]} count=${job_count[$ended]}
    times+=("$((SECONDS - job_began[$ended])) $name")
    unset "job_name[$ended]"
    printf '\n== %s ==\n' "$name"
    cat "$jobs_dir/${name//[\/ ]/-}.log"
    "$count" "$name" "$status" "$jobs_dir/${name//[\/ ]/-}.log"
}

# end_of NAME: waits for this job, if it runs.
end_of() {
    local process runs=yes
    while [[ $runs == yes ]]; do
        runs=no
        for process in "${!job_name[@]}"; do
            [[ ${job_name[$process]} != "$1" ]] || runs=yes
        done
        [[ $runs == no ]] || end_of_one
    done
}

end_of_all() {
    while ((${#job_name[@]} > 0)); do end_of_one; done
}

# A step that succeeds or does not, such as the lints.
count_step() {
    (($2 == 0)) || failures+=("$1")
}

# One of scripts/checks.
count_check() {
    local line
    if (($2 == 77)); then
        skip "$1: $(tail -n 1 "$3")"
    elif (($2 == 0)); then
        checks_passed=$((checks_passed + 1))
        printf '%s: ok\n' "$1"
    else
        checks_failed=$((checks_failed + 1))
        while IFS= read -r line; do failures+=("$1: $line"); done < <(grep . "$3" | tail -n 5)
        printf '%s: FAILED\n' "$1"
    fi
}

# One of scripts/accept, whose last line has the numbers.
count_accept() {
    local passes fails line
    if (($2 == 77)); then
        skip "$1: $(tail -n 1 "$3")"
        return
    fi
    read -r passes fails < <(awk '/^[0-9]+ passed, [0-9]+ failed/ { passes = $1; fails = $3; ended = 1 }
        END { print passes + 0, ended ? fails + 0 : 1 }' "$3")
    checks_passed=$((checks_passed + passes))
    checks_failed=$((checks_failed + fails))
    while IFS= read -r line; do failures+=("$1: ${line#FAIL }"); done < <(grep '^FAIL ' "$3")
    ((fails == 0)) || grep -q '^FAIL ' "$3" || failures+=("$1 stopped before its end")
}

# The laboratory of one kernel, which is the last word of the name.
count_lab() {
    local passed_there failed_there line
    read -r passed_there failed_there < <(awk '
        /^PASS / { passed++ }
        /^FAIL / { failed++ }
        /^\*\*\*\* THE EMULATED KERNEL CRASHED/ { passed = 0 }
        END { print passed + 0, failed + 0 }' "$3")
    checks_passed=$((checks_passed + passed_there))
    checks_failed=$((checks_failed + failed_there))
    while IFS= read -r line; do failures+=("$1: ${line#FAIL }"); done < <(grep '^FAIL ' "$3")
    case $2 in
    0) ;;
    77)
        printf '**** NOT RUN: interoperation with the rdma_rxe of Linux %s. This machine cannot have the laboratory.\n' "${1##* }"
        skip "$1: $(tail -n 1 "$3")"
        ;;
    124 | 137)
        ((failed_there == 0)) || return 0
        # An emulated machine that had no processor time proves nothing either way.
        printf '**** NOT FINISHED: interoperation with rdma_rxe; nothing failed in the time that there was.\n'
        skip "$1: the time was up after $passed_there scenarios"
        ;;
    *)
        if ((failed_there == 0)); then
            checks_failed=$((checks_failed + 1))
            failures+=("$1: it ended with $2 before a scenario failed")
        fi
        ;;
    esac
}

# What took how long, the longest first. Jobs run at once, so that their seconds are more than all.
print_times() {
    times+=("$((SECONDS - stage_began)) $stage")
    printf '\nseconds  test program\n'
    awk '
        /^ +Running / { name = $NF; gsub(/^\(|\)$/, "", name); sub(/.*\//, "", name); sub(/-[0-9a-f]+$/, "", name) }
        /^ +Doc-tests / { name = "examples of " $2 }
        /^test result: / { sub(/s$/, "", $NF); printf "%7d  %s\n", $NF, name }' "$log" | sort -rn | sed -n 1,12p
    printf '\nseconds  stage, or job beside others\n'
    printf '%s\n' "${times[@]}" | sort -rn | awk '{ seconds = $1; $1 = ""; printf "%7d %s\n", seconds, $0 }'
    printf '%7d  all\n' "$SECONDS"
}

# The totals are the last thing printed, also when a stage failed.
finish() {
    local status=$? passed failed reason failure process
    trap - EXIT
    for process in "${!job_name[@]}"; do
        printf 'NOT FINISHED: %s\n' "${job_name[$process]}"
        kill -- "-$process" 2>/dev/null || true
    done
    read -r passed failed < <(awk '
        /^test result: / {
            for (i = 2; i <= NF; i++) {
                if ($i ~ /^passed/) passed += $(i - 1)
                if ($i ~ /^failed/) failed += $(i - 1)
            }
        }
        END { print passed + 0, failed + 0 }' "$log")
    passed=$((passed + checks_passed))
    failed=$((failed + checks_failed))
    print_times
    printf '\n'
    for reason in ${skipped[@]+"${skipped[@]}"}; do
        printf 'SKIPPED: %s\n' "$reason"
    done
    # A reader may see only the end of the output, so the end names what failed.
    sed -nE 's/^test (.*) \.\.\. FAILED$/FAILED: test \1/p' "$log"
    for failure in ${failures[@]+"${failures[@]}"}; do
        printf 'FAILED: %s\n' "$failure"
    done
    if ((status != 0)); then
        # A stage that broke before any test of it could fail counts as one failure.
        ((failed > 0)) || failed=1
        ((${#failures[@]} > 0)) || printf 'FAILED in stage: %s\n' "$stage"
    fi
    printf '%d passed, %d failed\n' "$passed" "$failed"
    exit "$status"
}
trap finish EXIT
