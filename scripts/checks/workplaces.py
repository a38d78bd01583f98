"""The files for VS Code, nextest, mpirun and Slurm are run as the programs that read them would run them.

    workplaces.py PUMICE PLACE

Prints a line for each, or says what is not here.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

DOCS = Path("docs").resolve()
SECONDS = 120


def check(is_good: bool, sentence: str) -> None:
    if not is_good:
        sys.exit(f"workplaces: {sentence}")


def run(command: "list[str] | str", place: Path, may_fail: bool = False, **variables: str) -> "tuple[int, str]":
    """The exit code and everything that a command prints; a text is bash's."""
    words = ["bash", "-euc", command] if isinstance(command, str) else command
    ended = subprocess.run(
        words, cwd=place, env=os.environ | variables, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL, timeout=SECONDS,
    )
    check(may_fail or ended.returncode == 0, f"{command} ends with {ended.returncode}:\n{ended.stdout}")
    return ended.returncode, ended.stdout


def blocks(page: Path) -> "list[tuple[str, str]]":
    return re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(), re.M | re.S)


def first_program() -> str:
    return next(text for language, text in blocks(DOCS / "tutorials/first-program.md") if language == "c" and "int main" in text)


def in_workspace(value: str, place: Path) -> str:
    return value.replace("${workspaceFolder}", str(place))


def task_line(task: dict, place: Path) -> str:
    """The line that VS Code gives to the shell."""
    words = [shlex.quote(in_workspace(word, place)) for word in task.get("args", [])]
    return " ".join([in_workspace(task["command"], place), *words])


def problems(matcher: dict, output: str) -> "list[dict[str, str]]":
    """What the problem matcher of a task finds: its patterns fit lines one behind the other."""
    lines, found = output.splitlines(), []
    for at in range(len(lines)):
        fields: dict[str, str] = {}
        for pattern, line in zip(matcher["pattern"], lines[at:]):
            fits = re.search(pattern["regexp"], line)
            if not fits:
                break
            fields |= {name: fits[group] for name, group in pattern.items() if name != "regexp"}
        else:
            found.append(fields)
    return found


def vs_code(place: Path) -> None:
    folder = place / ".vscode"
    shutil.copytree(DOCS / "deploy/vscode", folder)
    tasks = {task["label"]: task for task in json.loads((folder / "tasks.json").read_text())["tasks"]}
    program = first_program()
    (place / "program.c").write_text(program)
    for label in ["compile", "run on pumice", "trace on pumice"]:
        _, said = run(task_line(tasks[label], place), place)
        check("hello, RDMA" in said or label == "compile", f"task {label}: {said}")
    for task in tasks.values():
        check(task.get("dependsOn", "compile") in tasks, f"{task['label']} depends on nothing")
    # The mistake of docs/tutorials/find-a-bug.md.
    wrong = program.replace('need(errno == 0, "ibv_post_send");', 'need(errno == 0, "ibv_post_send"); text[0] ^= 0x20;')
    check(wrong != program, "the first program has no ibv_post_send")
    (place / "program.c").write_text(wrong)
    run(task_line(tasks["compile"], place), place)
    _, said = run(task_line(tasks["check on pumice"], place), place)
    found = problems(tasks["check on pumice"]["problemMatcher"], said)
    line = 1 + next(number for number, text in enumerate(wrong.splitlines()) if "text[0] ^= 0x20" in text)
    check(
        any(one["code"] == "send-buffer-changed" and Path(one["file"]) == place / "program.c" for one in found),
        f"the panel Problems has {found}, not the mistake in line {line}:\n{said}",
    )
    configurations = json.loads((folder / "launch.json").read_text())["configurations"]
    debug = next(one for one in configurations if one["name"] == "debug on pumice")
    check(debug["preLaunchTask"] in tasks, "F5 compiles nothing")
    if not shutil.which("gdb"):
        print("VS Code: tasks; there is no gdb")
        return
    # As the extension drives gdb: breakpoints, run, a look around.
    steps = ["-break-insert main", "-break-insert -f ibv_post_send", "-exec-run"]
    gdb = [in_workspace(debug["miDebuggerPath"], place), "--interpreter=mi", "-q", "-nx", "--args", in_workspace(debug["program"], place)]
    script = place / "steps"
    script.write_text("set breakpoint pending on\nbreak main\nrun\nbreak ibv_post_send\ncontinue\nbacktrace 3\nkill\nquit\n")
    _, said = run([gdb[0], "-q", "-nx", "-batch", "-x", str(script), "--args", gdb[-1]], place)
    check("libpumice" in said or "ibv_post_send" in said and "main" in said, f"gdb stops elsewhere: {said}")
    _, said = run(f"printf '%s\\n' {' '.join(map(shlex.quote, steps))} | timeout 60 {shlex.join(gdb)}; true", place)
    check('reason="breakpoint-hit"' in said or "*running" in said, f"gdb's machine interface: {said}")
    print("VS Code: tasks, problems, debugger")


def container() -> None:
    folder = DOCS / "deploy/devcontainer"
    about = json.loads((folder / "devcontainer.json").read_text())
    docker = (folder / about["build"]["dockerfile"]).read_text()
    base = re.search(r"^FROM (\S+)$", docker, re.M)
    version = re.search(r'^version = "(.*)"$', Path("Cargo.toml").read_text(), re.M)
    check(base is not None and version is not None and base[1] == f"pumice:{version[1]}", f"the image is {base and base[1]}")
    check(docker.rstrip().endswith(f"USER {about['remoteUser']}"), "the container has another user than its file says")
    print("devcontainer: its files fit each other")


TESTS = """
#[test]
fn passes() {}

#[test]
fn waits_and_fails() {
    std::thread::sleep(std::time::Duration::from_secs(3600));
    assert_eq!(1, 2, "on purpose");
}
"""


def nextest(place: Path) -> None:
    if subprocess.run(["cargo", "nextest", "--version"], capture_output=True).returncode:
        print("nextest: not installed, so not tried: cargo install cargo-nextest")
        return
    crate = place / "crate"
    (crate / "src").mkdir(parents=True)
    (crate / "src/lib.rs").write_text(TESTS)
    (crate / "Cargo.toml").write_text('[package]\nname = "tried"\nversion = "0.0.0"\nedition = "2024"\n[workspace]\n')
    machine = subprocess.run(["rustc", "-vV"], text=True, capture_output=True).stdout
    triple = re.search(r"^host: (\S+)$", machine, re.M)[1]
    variables = {
        f"CARGO_TARGET_{triple.upper().replace('-', '_')}_RUNNER": str(DOCS / "deploy/nextest/nextest-on-pumice"),
        "CARGO_TARGET_DIR": str(crate / "target"), "PUMICE_SEED": "7",
    }
    code, said = run("cargo nextest run --offline --no-fail-fast", crate, may_fail=True, **variables)
    check(code == 100 and "1 passed" in said and "1 failed" in said, f"nextest ends with {code}:\n{said}")
    check("seed: 7" in said, f"a failure without its seed:\n{said}")
    replay = re.search(r"replay: (\S+\.replay)", said)
    check(replay is not None and "certified" in said, f"a failure without its verdict or its replay:\n{said}")
    code, again = run(replay[1], crate, may_fail=True)
    check(code != 0 and "on purpose" in again and "departs" not in again, f"the replay ends with {code}:\n{again}")
    check(len(list((crate / "target/worlds").glob("*.world"))) == 1, "recordings of tests that passed are kept")
    print("nextest: seed, verdict, replay")


def mpi(place: Path) -> None:
    page = blocks(DOCS / "deploy/mpi/README.md")
    if not shutil.which("mpicc") or not shutil.which("mpirun"):
        print("MPI: not installed, so not tried: apt-get install openmpi-bin libopenmpi-dev")
        return
    source = Path("scripts/accept/openmpi-verify.c").resolve()
    built = subprocess.run(["mpicc", "-O1", "-o", str(place / "program"), str(source)], text=True, capture_output=True)
    if built.returncode:
        print(f"MPI: mpicc does not work here: {built.stderr.splitlines()[:1]}")
        return
    (place / "hosts").write_text("localhost slots=4\n")
    line = next(text for _, text in page if "mpirun --hostfile" in text)
    job = next(text for _, text in page if "#SBATCH" in text)
    # Two processors for four ranks, and the rights that a test has.
    here = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
            "OMPI_MCA_mpi_yield_when_idle": "1", "UCX_WARN_UNUSED_ENV_VARS": "n", "PUMICE_LOG": "warn"}
    _, said = run(line, place, **here)
    check("verified " in said, f"mpirun: {said}")
    # srun starts as many tasks as the job asks for.
    stand_in = place / "srun"
    stand_in.write_text("#!/bin/sh\nshift\nexec mpirun -np 4 --mca pml ucx --mca btl '^openib,tcp,vader,ofi' \"$@\"\n")
    stand_in.chmod(0o755)
    _, said = run(job, place, PATH=f"{place}:{os.environ['PATH']}", **here)
    check("verified " in said, f"the job: {said}")
    traces = list((place / "reports").glob("*.trace"))
    check(len(traces) == 4, f"four ranks leave {len(traces)} traces")
    print("MPI: a hostfile, and a job with a stand-in for srun")


def main() -> None:
    pumice, place = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    os.environ["PATH"] = f"{pumice.parent}:{os.environ['PATH']}"
    # Not below /dev/shm, which is another one in each world.
    os.environ["XDG_RUNTIME_DIR"] = str(place / "runtime")
    (place / "runtime").mkdir(mode=0o700)
    container()
    for part in [vs_code, nextest, mpi]:
        own = place / part.__name__
        own.mkdir()
        part(own)


main()
