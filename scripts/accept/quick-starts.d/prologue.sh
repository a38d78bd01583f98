# Before the commands of a page. Sourced by bash, where a page is read.
# shellcheck shell=bash
set -euo pipefail
servers=()
# A socket of a TCP port is listened on.
listening() {
    awk -v port="$(printf ':%04X' 18515)" '$4 == "0A" && substr($2, length($2) - 4) == port { found = 1 } END { exit !found }' \
        /proc/net/tcp /proc/net/tcp6
}
# What a reader does with two shells: the last job goes on in its own, and the next command comes when it listens.
begun() {
    # The nap below has a process, too.
    local server=$!
    servers+=("$server")
    until listening || ! kill -0 "$server" 2>/dev/null; do read -rt 0.02 <> <(:) || true; done
}
ended() {
    local server
    for server in ${servers[@]+"${servers[@]}"}; do wait "$server"; done
    servers=()
}
first_pingpong() { printf 'FIRST PING-PONG %s\n' "${EPOCHREALTIME/[.,]/}" | tee -a "${FIRST:-/dev/null}"; }
# The runner of GitHub: what steps put into its path file is in the path of later ones.
runner_path() {
    local folder
    [[ ! -f ${GITHUB_PATH:-} ]] || while read -r folder; do PATH=$folder:$PATH; done <"$GITHUB_PATH"
}
# pumice_action COMMANDS: the steps of .github/actions/pumice/action.yml.
pumice_action() {
    /action/pumice.sh install
    REPORTS=$RUNNER_TEMP/pumice/reports INPUT_RUN=$1 /action/pumice.sh run
    REPORTS=$RUNNER_TEMP/pumice/reports OUTCOME=success /action/pumice.sh report
}
