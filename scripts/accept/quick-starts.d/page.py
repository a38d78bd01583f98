"""Makes a script of bash of a quick start: its blocks as they are, and between them what a reader does without being told.

    page.py PAGE.md VERSION MACHINE WHEEL DEB [github] >SCRIPT

The remarks before blocks are those of tests/docs.rs. A block that this test does not run is here only if its remark says
`run by: scripts/accept/quick-starts`. With the word github a workflow is taken: its steps that have `run`, and those of pumice's
own action. The script calls `first_pingpong` after the first block with a ping-pong.
"""

from __future__ import annotations

import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

RUN_BY = "run by: scripts/accept/quick-starts"


@dataclass
class Block:
    language: str
    remark: str
    text: str

    def said(self, word: str) -> str | None:
        """What the remark says behind this word and a colon."""
        for part in self.remark.split(";"):
            if part.strip().startswith(word + ":"):
                return part.split(":", 1)[1].strip()
        return None

    def is_run(self) -> bool:
        return RUN_BY in self.remark or self.said("not run") is None


def blocks_of(text: str) -> list[Block]:
    """The fenced blocks, with the comment in the last line before each."""
    found, remark, inside = [], "", None
    for line in text.splitlines():
        if inside is not None:
            if line.startswith("```"):
                found.append(Block(inside[0], inside[1], "".join(inside[2:])))
                inside = None
            else:
                inside.append(line + "\n")
        elif line.startswith("```"):
            inside, remark = [line[3:].strip(), remark], ""
        elif comment := re.fullmatch(r"<!--\s*(.*?)\s*-->", line):
            remark = comment[1]
        elif line.strip():
            remark = ""
    return found


def commands(text: str) -> str:
    """The lines of a block; those that are for another shell, or end with &, go on when they listen."""
    script, whole = [], ""
    for line in text.splitlines():
        whole += line
        if line.endswith("\\"):
            whole += "\n"
            continue
        code, _, comment = whole.partition(" # ")
        if "in one shell" in comment:
            script.append(f"{code.strip()} & begun")
        else:
            script.append(whole)
        whole = ""
    return "\n".join([*script, "ended", ""])


def steps_of(workflow: str) -> str:
    """The steps of a workflow as a runner takes them. Steps of GitHub's own actions are left out: the files are there."""
    import yaml

    (job,) = yaml.safe_load(workflow)["jobs"].values()
    script = []
    for step in job["steps"]:
        if "run" in step:
            script.append(f"runner_path\nbash -e -o pipefail -c {shlex.quote(step['run'])}")
        elif step["uses"].startswith("pumice-rdma/pumice/.github/actions/pumice@"):
            script.append(f"pumice_action {shlex.quote(step['with']['run'])}\nfirst_pingpong")
        elif not step["uses"].startswith("actions/"):
            raise SystemExit(f"what does the action {step['uses']} do?")
    return "\n".join([*script, "runner_path", ""])


def main() -> None:
    page = Path(sys.argv[1])
    version, machine, wheel, deb = sys.argv[2:6]
    github = sys.argv[6:] == ["github"]
    script, timed, shell = [], False, False
    for block in blocks_of(page.read_text()):
        # The pages name the packages of one version, one processor and one glibc.
        text = re.sub(r"pumice-\S+\.whl", wheel, block.text)
        text = re.sub(r"pumice_\S+\.deb", deb, text).replace("0.1.0", version)
        text = re.sub(r"x86_64|aarch64", machine, text)
        if name := block.said("file"):
            script.append(f"cat >{name} <<'end-of-this-file'\n{text}end-of-this-file\n")
        if not block.is_run():
            continue
        if block.language == "yaml" and github:
            script.append(steps_of(text))
            timed = True
        elif block.language == "sh":
            # A step of the workflow has done that.
            if (first := block.said("first")) and not github:
                script.append(commands(first))
            # A shell takes what comes next as its input.
            if re.search(r"^docker run .* bash$", text.rstrip().splitlines()[-1]):
                script.append(text.rstrip() + " <<'end-of-this-shell'\n$prologue\n".replace("$prologue", "source /prologue"))
                shell = True
            else:
                script.append("{\n" + commands(text) + "} </dev/null >>printed\ncat printed\n" if not shell else commands(text))
            if "ibv_rc_pingpong" in text and not timed:
                timed = True
                script.append("first_pingpong\n")
        elif block.language == "text" and "printed" in block.remark:
            for line in text.splitlines():
                script.append(f"grep -qxF {shlex.quote(line)} printed\n")
    if not timed:
        raise SystemExit(f"{page} has no ping-pong")
    if shell:
        script.append("end-of-this-shell\n")
    sys.stdout.write("\n".join(script))


if __name__ == "__main__":
    main()
