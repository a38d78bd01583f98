#!/usr/bin/env bash
# What CI systems and clusters read is what they understand (docs/ci.md, docs/deploy, .github), and the steps of the GitHub
# action do what they say, on a machine without GitHub.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
python=${PUMICE_PYTHON:-python3}
target_dir=$(realpath -m "${CARGO_TARGET_DIR:-target}")
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT

fail() {
    printf '%s\n' "$1" >&2
    exit 1
}

# valid SCHEMA FILE...
valid() {
    "$python" -m check_jsonschema --quiet --builtin-schema "vendor.$1" "${@:2}" || fail "${*:2}: not as $1 has it"
}
valid github-actions .github/actions/pumice/action.yml
valid github-workflows .github/workflows/*.yml
valid compose-spec docs/deploy/compose/compose.yml
# The examples of docs/ci.md, of which the third and the fifth are GitLab's and the sixth is of Kubernetes, and the workflow of
# the quick start.
awk -v place="$place" '/^```yaml$/ { inside = 1; number++; next } /^```$/ { inside = 0 } inside { print > (place "/" number ".yml") }' \
    docs/ci.md docs/quick-start/github.md
# The job that extends the template: GitLab joins the two.
cat docs/deploy/gitlab/pumice.yml >"$place/gitlab.yml"
sed '/^include:/,/remote:/d' "$place/3.yml" >>"$place/gitlab.yml"
valid github-workflows "$place/1.yml" "$place/2.yml" "$place/4.yml" "$place/7.yml"
valid gitlab-ci "$place/3.yml" "$place/5.yml" "$place/gitlab.yml"
"$python" - docs/deploy/kind/*.yml <<'END'
import sys
from ruamel.yaml import YAML
pods = 0
for file in sys.argv[1:]:
    for document in YAML(typ="safe").load_all(open(file)):
        assert document["apiVersion"] and document["kind"], file
        spec = document.get("spec", {}).get("template", {}).get("spec")
        if not spec:
            continue
        assert spec["securityContext"]["runAsNonRoot"] is True, file
        for container in spec["initContainers"] + spec["containers"]:
            pods += 1
            may = container["securityContext"]
            assert may["capabilities"] == {"drop": ["ALL"]} and may["allowPrivilegeEscalation"] is False, container["name"]
            volumes = {volume["name"] for volume in spec["volumes"]}
            assert volumes >= {mount["name"] for mount in container["volumeMounts"]}, container["name"]
assert pods == 2
END

# An archive as scripts/package makes it, of what cargo has built.
if [[ -z ${PUMICE:-} ]]; then
    cargo build --quiet
    PUMICE=$target_dir/debug/pumice
fi
mkdir -p "$place/pumice-0-test/bin" "$place/pumice-0-test/lib/pumice" "$place/runner"
cp "$PUMICE" "$place/pumice-0-test/bin/"
for object in libpumice.so libpumice_sysfs.so libpumice_rsocket.so libpumice_check.so; do
    # `cargo test` puts objects into deps only.
    newest=$(find "$target_dir/debug/$object" "$target_dir/debug/deps/$object" -printf '%T@ %p\n' 2>/dev/null | sort -n | tail -n 1) || true
    [[ -z $newest ]] || cp "${newest#* }" "$place/pumice-0-test/lib/pumice/"
done
tar -czf "$place/archive.tar.gz" -C "$place" pumice-0-test
export RUNNER_TEMP=$place/runner GITHUB_PATH=$place/path GITHUB_OUTPUT=$place/output GITHUB_STEP_SUMMARY=$place/summary
action=.github/actions/pumice/pumice.sh
begun=$SECONDS
INPUT_ARCHIVE=$place/archive.tar.gz "$action" install >"$place/log" 2>&1 || fail "install: $(cat "$place/log")"
((SECONDS - begun < 10)) || fail "installing took $((SECONDS - begun)) s"
grep -qx "$place/runner/pumice/installed/bin" "$place/path" || fail 'bin is not put into the PATH'
REPORTS=$(sed -n 's/^reports=//p' "$place/output")
export REPORTS
INPUT_RUN='pumice run -- true; pumice fault plans >/dev/null' "$action" run || fail 'commands that succeed fail'
OUTCOME=success "$action" report
grep -q '^### pumice: success$' "$place/summary" || fail "no summary: $(cat "$place/summary")"
# Programs that meet a fault, and a job that fails. Without ibverbs-utils it fails all the same, and has no traces.
export INPUT_FAULTS=$place/plan.toml INPUT_WIRE=udp
printf '[[rule]]\nname = "first"\ndo = "drop"\nnth = "1"\nopcode = "send"\n' >"$INPUT_FAULTS"
INPUT_RUN='
pumice run --addr 127.93.1.1 -- ibv_rc_pingpong -d pumice0 -g 0 -n 100 >/dev/null &
until ss -ltn | grep -q ":18515 "; do kill -0 $! || exit 1; done
pumice run --addr 127.93.1.2 -- ibv_rc_pingpong -d pumice0 -g 0 -n 100 127.93.1.1
wait $!
false' "$action" run >"$place/log" 2>&1 && fail 'commands that fail succeed'
OUTCOME=failure "$action" report
grep -q '^### pumice: failure$' "$place/summary" || fail "no summary: $(cat "$place/summary")"
if command -v ibv_rc_pingpong >/dev/null && command -v ss >/dev/null; then
    grep -q 'send requests' "$place/summary" || fail "no reasons in the summary: $(cat "$place/log" "$place/summary")"
    grep -q '  first' "$place/summary" || fail "no faults in the summary: $(cat "$place/summary")"
    grep -q '<html' "$REPORTS/trace.html" || fail 'no page of the traces'
    for kind in pcapng trace faults; do compgen -G "$REPORTS/*.$kind" >/dev/null || fail "no $kind among the reports"; done
fi
unset INPUT_FAULTS INPUT_WIRE
# A mistake with verbs, that of docs/tutorials/find-a-bug.md, is an annotation at its line.
if command -v cc >/dev/null && [[ -e /usr/include/infiniband/verbs.h ]]; then
    awk '/^```c$/ { inside = 1; next } /^```$/ { inside = 0 } inside' docs/tutorials/first-program.md |
        sed 's/need(errno == 0, "ibv_post_send");/& text[0] ^= 0x20;/' >"$place/changed.c"
    cc -g -o "$place/changed" "$place/changed.c" -libverbs
    status=0
    GITHUB_WORKSPACE=$place INPUT_CHECK=true INPUT_RUN="pumice run -- $place/changed" "$action" run >"$place/log" 2>&1 || status=$?
    ((status == 3)) || fail "commands with a finding end with $status: $(cat "$place/log")"
    line=$(grep -n 'text\[0\] ^= 0x20' "$place/changed.c" | cut -d: -f1)
    grep -q '^::error file=changed.c,line=[0-9]*,title=pumice: send-buffer-changed::' "$place/log" ||
        fail "no annotation of line $line: $(cat "$place/log")"
    GITHUB_WORKSPACE=$place OUTCOME=failure "$action" report
    grep -q '^| send-buffer-changed | `changed.c:' "$place/summary" || fail "no finding in the summary: $(cat "$place/summary")"
fi
printf 'installed, ran, annotated and reported\n'
unset INPUT_FAULTS INPUT_WIRE
"$python" scripts/checks/ci-blocks.py "$place/pumice-0-test"
