# For the scripts beside this one: rdma-core's Python tests, module by module, on libpumice.so.
# Sourced after pair.sh, with `tests` set to the folder above tests/ and `python` to the interpreter.
# shellcheck shell=bash disable=SC2154

limit_seconds=${PUMICE_ACCEPT_SECONDS:-120}
all_ran=0 all_failed=0 all_errors=0 all_skipped=0
# So many tests must pass in all.
least_passed=0

# figure NAME LOG: e.g. the 3 of "skipped=3"; 0 if it is not there.
figure() {
    local found
    found=$(sed -n "s/^\(OK\|FAILED\) (.*$1=\([0-9]*\).*/\2/p" "$2" | tail -n 1)
    echo "${found:-0}"
}

# skips LOG: the tests that skipped themselves, by reason.
skips() {
    awk '
        match($0, /^test_[A-Za-z0-9_]+ \(/) { test = substr($0, 1, RLENGTH - 2) }
        match($0, /skipped ['\''"].*['\''"]$/) {
            reason = substr($0, RSTART + 9, RLENGTH - 10)
            if (!(reason in names)) order[++count] = reason
            names[reason] = names[reason] " " test
        }
        END { for (i = 1; i <= count; i++) printf "      skipped because \"%s\":%s\n", order[i], names[order[i]] }
    ' "$1"
}

# run_module NAME [OPTION...]: tests/test_NAME.py, with options of `pumice run`, on `device`, or pumice0. A test that fails or ends with an error
# makes the script fail.
run_module() {
    local module=$1 log=$logs/$1 status=0 ran failures errors skips text
    (cd "$tests" && timeout "$limit_seconds" "$pumice" run "${@:2}" --addr 127.0.0.1 --log warn -- "$python" tests/run_tests.py -v --dev "${device:-pumice0}" "tests.test_$module") >"$log" 2>&1 || status=$?
    ran=$(sed -n 's/^Ran \([0-9]*\) tests\{0,1\} in .*/\1/p' "$log" | tail -n 1)
    ran=${ran:-0}
    failures=$(figure failures "$log") errors=$(figure errors "$log") skips=$(figure skipped "$log")
    # A module that could not be loaded, or a crash, has no last line with figures.
    ((status == 0 || failures + errors > 0)) || errors=1
    text="test_$module   $ran tests: $((ran - failures - errors - skips)) passed, $failures failed, $errors errors, $skips skipped"
    if [[ $status == 0 && $ran != 0 ]]; then
        pass "$text"
    else
        fail "$text (status $status)" <(grep -E '^(ERROR|FAIL):|Error:' "$log" || tail -n 5 "$log")
    fi
    skips "$log"
    ((all_ran += ran, all_failed += failures, all_errors += errors, all_skipped += skips)) || true
}

# The sums, and the end.
finish_modules() {
    local all_passed=$((all_ran - all_failed - all_errors - all_skipped))
    printf '%d tests: %d passed, %d failed, %d errors, %d skipped\n' "$all_ran" "$all_passed" "$all_failed" "$all_errors" "$all_skipped"
    if ((all_passed < least_passed)); then
        fail "only $all_passed tests passed; $least_passed did before"
    fi
    finish
}
