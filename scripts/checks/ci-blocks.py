"""The blocks of the CI pages are run as a runner would run them: a job whose test fails ends red, one whose test passes ends green.

    ci-blocks.py PUMICE        PUMICE is the folder with the program and its libraries

Downloads, packages and actions of others are left out. In the place of the programs of a page stand scripts that do what FAILS says.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from ruamel.yaml import YAML

PAGES = ["docs/ci.md", "docs/quick-start/github.md"]
ACTION = Path(".github/actions/pumice/pumice.sh").resolve()
SECONDS = 60

# A program with two sides: the one with an address behind its options is the client. FAILS is one of SCENES.
TWO_SIDES = """#!/bin/bash
case ${@: -1} in 127.* | localhost) client=yes ;; *) client= ;; esac
[[ -n $client || $FAILS != first ]] || exit 9
if [[ -n $client ]]; then touch done; [[ $FAILS != client && $FAILS != test ]]; exit; fi
touch listens
until [[ -e done ]]; do sleep 0.05; done
[[ $FAILS != last ]]
"""
ONE_SIDE = '#!/bin/sh\n[ "$FAILS" = nothing ]\n'
# A test that opens a device, without which `pumice check --check-exit` is red.
A_TEST = '#!/bin/sh\n/usr/bin/ibv_devinfo >/dev/null 2>&1\n[ "$FAILS" = nothing ]\n'
STAND_INS = {
    "ibv_rc_pingpong": TWO_SIDES,
    "ibv_devinfo": ONE_SIDE,
    "ss": "#!/bin/sh\n[ ! -e listens ] || echo LISTEN :18515\n",
    "sudo": "#!/bin/sh\n",
    "apt-get": "#!/bin/sh\n",
    "curl": "#!/bin/sh\n",
    "tar": "#!/bin/sh\n",
}
# What fails: the server at once, the server at its end, the client, or any program.
SCENES = ["nothing", "first", "last", "client", "test"]


def blocks(page: str) -> list[tuple[str, str]]:
    return re.findall(r"^```(\w+)\n(.*?)^```$", Path(page).read_text(), re.M | re.S)


def github(text: str) -> str:
    """The job's steps in order, up to the first that fails."""
    (job,) = YAML(typ="safe").load(text)["jobs"].values()
    script = ["export REPORTS=$PWD/reports"]
    for step in job["steps"]:
        if step.get("if"):
            continue
        if "run" in step:
            script.append(f"bash -e -c {quoted(step['run'])} || exit 1")
        elif "pumice" in step["uses"]:
            commands = step["with"].get("run", "")
            script.append(f"INPUT_RUN={quoted(commands)} '{ACTION}' run && outcome=success || outcome=failure")
            script.append(f"OUTCOME=$outcome '{ACTION}' report; [ $outcome = success ] || exit 1")
    return "\n".join(script)


def gitlab(text: str) -> str:
    """before_script and script are one script; what after_script ends with does not matter. A job has what it extends."""
    template = YAML(typ="safe").load(Path("docs/deploy/gitlab/pumice.yml").read_text())
    job = YAML(typ="safe").load(text)["rdma"]
    job = template[job["extends"]] | job
    lines = ["export CI_PROJECT_DIR=$PWD", *(f'export {name}="{value}"' for name, value in job["variables"].items())]
    main = "\n".join([*lines, "set -eo pipefail", *job["before_script"], *job["script"]])
    after = "\n".join([*lines, *job["after_script"]])
    return f"""bash -c {quoted(main)}; code=$?
CI_JOB_STATUS=$([ $code = 0 ] && echo success || echo failed) bash -c {quoted(after)}
exit $code"""


def jenkins(text: str) -> str:
    """The steps of all stages up to the first that fails, then those of `post`; each in a shell of its own, as Jenkins has it."""
    def steps(part: str) -> list[str]:
        return [f"sh -xe -c {quoted(command)}" for command in re.findall(r"\bsh '([^'\n]*)'", part)]

    stages, _, post = text.partition("\n    post {")
    (trace,) = re.findall(r'PUMICE_TRACE = "\$\{env.WORKSPACE\}(/[^"]*)"', stages)
    (report,) = re.findall(r"junit testResults: '([^']*)'", post)
    (on_failure,) = steps(post)
    assert len(steps(stages)) == 2 and "failure { sh" in post, text
    # A report of findings is there whichever way the test ends, and Jenkins can read it.
    is_junit = f"python3 -c 'import sys, xml.etree.ElementTree as t; sys.exit(not t.parse(\"{report}\").getroot().tag.startswith(\"testsuite\"))'"
    return f"""export PUMICE_TRACE="$PWD{trace}"; code=0
{{ {" && ".join(steps(stages))}; }} || code=$?
{is_junit} || exit 125
[ $code = 0 ] || {{ {on_failure} && [ -s reports/trace.html ] || exit 126; }}
exit $code"""


def any_other(text: str, shell: str) -> str:
    """The lines as they stand; installing is left out."""
    return f"{shell} -c {quoted(re.sub(r'^.*pumice.sh install$', ':', text, flags=re.M))}"


# A search that machines share: it and "pumice world merge" are run with the variables that the engine sets.
SHARDS = 4
# The test of such a search: what fails, fails at the seeds of one machine only.
SEARCHED = '#!/bin/sh\n[ "$FAILS" = nothing ] || [ "$PUMICE_SHUFFLE" != 3 ]\n'


def commands(job: dict) -> str:
    """The commands of a job of GitHub or GitLab which are about searches."""
    lines = job["script"] if "script" in job else [step["run"] for step in job["steps"] if "run" in step]
    (command,) = [line for line in lines if "pumice world" in line]
    return command


def github_number(text: str, index: int) -> str:
    return text.replace("${{ strategy.job-index }}", str(index)).replace("${{ strategy.job-total }}", str(SHARDS))


def shared_search(text: str) -> tuple[str, str, list[dict[str, str]]] | None:
    """The engine, the search, and the variables of each machine, if the block has such a search."""
    if not re.search("pumice,? world,? search", text):
        return None
    if "#SBATCH" in text:
        (array,) = re.findall(r"^#SBATCH --array=1-(\d+)$", text, re.M)
        slurm = {"MIN": "1", "MAX": array, "COUNT": array, "STEP": "1"}
        variables = [{f"SLURM_ARRAY_TASK_{name}": value for name, value in (slurm | {"ID": str(k + 1)}).items()} for k in range(int(array))]
        return "Slurm", text, variables
    document = YAML(typ="safe").load(text)
    if document.get("kind") == "Job":
        spec = document["spec"]
        (container,) = spec["template"]["spec"]["containers"]
        own = {variable["name"]: variable["value"] for variable in container["env"]}
        assert spec["completionMode"] == "Indexed" and own["PUMICE_SHARD_COUNT"] == str(spec["completions"])
        variables = [own | {"JOB_COMPLETION_INDEX": str(k)} for k in range(spec["completions"])]
        return "Kubernetes", " ".join(container["command"]), variables
    if "jobs" in document:
        job = document["jobs"]["search"]
        assert len(job["strategy"]["matrix"]["machine"]) == SHARDS
        variables = [{name: github_number(value, k) for name, value in job["env"].items()} for k in range(SHARDS)]
        return "GitHub", commands(job), variables
    total = document["search"]["parallel"]
    return "GitLab", commands(document["search"]), [{"CI_NODE_INDEX": str(k + 1), "CI_NODE_TOTAL": str(total)} for k in range(total)]


def merge_of(page: list[tuple[str, str]], at: int) -> str:
    """The first "pumice world merge" in the block of the search, or behind it."""
    for _, text in page[at:]:
        found = re.search(r"pumice world merge [^'\n]*", text)
        if found:
            return found.group()
    raise AssertionError("no merge")


def run_searches(page: str, pumice: Path) -> tuple[int, list[str]]:
    """Each engine's search on all machines but one, on all, and with a test that fails at one seed."""
    count, wrong = 0, []
    all_blocks = blocks(page)
    for at, (_, text) in enumerate(all_blocks):
        shared = shared_search(text)
        if not shared:
            continue
        engine, search, machines = shared
        search, merge = search.replace("1..2000", "1..8"), merge_of(all_blocks, at)
        assert len(machines) == SHARDS, engine
        for fails in ["nothing", "test"]:
            with tempfile.TemporaryDirectory() as folder:
                place = Path(folder)
                (place / "my_test").write_text(SEARCHED)
                (place / "my_test").chmod(0o755)

                def step(script: str, variables: dict[str, str]) -> int:
                    own = {name: value for name, value in os.environ.items() if not re.match("PUMICE_SHARD|CI_NODE|SLURM|JOB_COMP", name)}
                    own |= {"PATH": f"{pumice / 'bin'}:{os.environ['PATH']}", "XDG_RUNTIME_DIR": folder, "FAILS": fails} | variables
                    ended = subprocess.run(["bash", "-e", "-c", script], cwd=place, env=own, text=True, capture_output=True)
                    said.append(ended.stdout + ended.stderr)
                    return ended.returncode

                said: list[str] = []
                codes = [step(search, variables) for variables in machines[1:]] + [step(merge, {})]
                codes += [step(search, machines[0]), step(merge, {})]
            # Without the first machine's result the merge is not good. Seed 3 is of one of the others.
            count += 1
            failing = [machine for machine in range(1, SHARDS) if codes[machine - 1]]
            last = 1 if fails == "test" else 0
            if len(failing) != last or codes[SHARDS - 1] != 1 or codes[SHARDS] != 0 or codes[SHARDS + 1] != last:
                wrong.append(f"{page}, search by {engine}: {fails} fails, and the exit codes are {codes}\n{''.join(said)}")
    return count, wrong


def quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def jobs(page: str):
    for language, text in blocks(page):
        if shared_search(text):
            continue
        if language == "sh" and "pumice.sh" in text:
            for shell in ["bash -e", "sh", "bash -eo pipefail"]:
                yield f"{page}, lines for {shell}", any_other(text, shell)
        elif language == "groovy":
            yield f"{page}, Jenkins", jenkins(text)
        elif language == "yaml":
            yield (f"{page}, GitLab", gitlab(text)) if "extends" in text else (f"{page}, workflow", github(text))


def run(script: str, fails: str, place: Path, pumice: Path) -> subprocess.CompletedProcess[str]:
    for name, text in STAND_INS.items():
        (place / name).write_text(text)
        (place / name).chmod(0o755)
    for name in ["test-rdma", "your_test"]:
        (place / name).write_text(A_TEST)
        (place / name).chmod(0o755)
    (place / ".github").symlink_to(ACTION.parents[2])
    environment = dict(
        os.environ, FAILS=fails, PATH=f"{place}:{pumice / 'bin'}:{os.environ['PATH']}", RUNNER_TEMP=str(place / "runner"),
        XDG_RUNTIME_DIR=str(place),
    )
    # The action takes pumice from where it has installed it.
    (place / "runner/pumice").mkdir(parents=True)
    (place / "runner/pumice/installed").symlink_to(pumice)
    for name in ["GITHUB_STEP_SUMMARY", "GITHUB_PATH", "GITHUB_OUTPUT", "REPORTS", "INPUT_RUN", "OUTCOME"]:
        environment.pop(name, None)
    return subprocess.run(
        ["timeout", "-k", "5", str(SECONDS), "bash", "-c", script], cwd=place, env=environment, text=True, capture_output=True
    )


def main() -> None:
    pumice = Path(sys.argv[1]).resolve()
    wrong, count = [], 0
    for page in PAGES:
        for name, script in jobs(page):
            for fails in SCENES:
                if fails in ("first", "last", "client") and "ibv_rc_pingpong" not in script:
                    continue
                with tempfile.TemporaryDirectory() as place:
                    ended = run(script, fails, Path(place), pumice)
                count += 1
                is_right = ended.returncode == 0 if fails == "nothing" else 0 < ended.returncode < 124
                if not is_right:
                    wrong.append(f"{name}: {fails} fails, and the job ends with {ended.returncode}\n{ended.stdout}{ended.stderr}")
    searches, wrong_searches = run_searches(PAGES[0], pumice)
    wrong += wrong_searches
    if searches != 8:
        wrong.append(f"only {searches} shared searches were found in {PAGES[0]}")
    if wrong or count < 20:
        sys.exit("\n".join(wrong) or f"only {count} jobs were found in the pages")
    print(f"{count} jobs of the CI pages end as their tests do, and {searches} searches on {SHARDS} machines as well")


main()
