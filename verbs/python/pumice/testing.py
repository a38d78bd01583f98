"""What tests need around a device: addresses of their own, fault plans, and all that explains a failure."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional, Union, cast

from ._executable import executable
from ._launch import Program, command, run, start
from ._options import Options

if TYPE_CHECKING:
    from typing_extensions import Unpack

_NAP_SECONDS = 0.01
_LISTENING = "0A"
_END_SECONDS = 5.0
_COMMAND_SECONDS = 60.0
_SAID = "pumice: "
_DEFAULT_SEED = 1
# Options that a replay needs again; the record has what the others did.
_REPEATED = ["addr", "devices", "device", "profile", "tag", "gid_index", "topology", "checks", "log"]


class Process:
    """A program that `Device.start` has started. Its output goes to the file `output_file`."""

    def __init__(self, popen: subprocess.Popen[Any], line: str, output_file: Path) -> None:
        self.popen = popen
        self.line = line
        """The command that starts it again."""
        self.output_file = output_file

    @property
    def output(self) -> str:
        """What it has printed so far, standard error included."""
        return self.output_file.read_text(errors="replace")

    def wait(self, timeout: float = 60.0) -> int:
        """Waits until it ends; its exit code. Raises subprocess.TimeoutExpired after `timeout` seconds."""
        return self.popen.wait(timeout)

    def wait_for_port(self, port: int, timeout: float = 60.0) -> None:
        """Waits until a program listens on a TCP port here, as ibv_rc_pingpong and perftest do.

        Raises RuntimeError if this program ends before, and TimeoutError after `timeout` seconds.
        """
        end = time.monotonic() + timeout
        while not _is_listening(port):
            if self.popen.poll() is not None:
                raise RuntimeError(
                    f"{self.line} has ended with {self.popen.returncode} before it listened on TCP port {port}:\n"
                    f"{self.output}"
                )
            if time.monotonic() > end:
                raise TimeoutError(f"{self.line} does not listen on TCP port {port} after {timeout} seconds")
            time.sleep(_NAP_SECONDS)

    def end(self) -> None:
        """Ends it if it runs: by SIGTERM, and five seconds later by SIGKILL."""
        if self.popen.poll() is None:
            self.popen.terminate()
            try:
                self.popen.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                self.popen.kill()
                self.popen.wait()


class Device:
    """A software RDMA device for the programs of one test.

    All programs that it runs have its options; options of a call go before them. Captures and traces of each
    program are in `folder`, one file for each process.
    """

    def __init__(self, folder: Path, address: str, options: Options) -> None:
        self.folder = folder
        """Where captures, traces, fault reports and output of programs are."""
        self.address = address
        """The address of the device, on loopback, unless the option `addr` names another one."""
        self.options = options
        self.processes: list[Process] = []
        self.lines: list[str] = []
        """The commands that ran, in their order."""
        self.replay_lines: list[str] = []
        """The commands that run again what was recorded, with the option `record` or `--pumice-record`."""
        self.is_recorded = False
        """Whether each program is recorded, in a folder of its own."""
        # The number of commands that ran before the fault plan of now was set.
        self._before_plan = 0

    def run(
        self,
        program: Program,
        *,
        check: bool = True,
        timeout: float = 60.0,
        cwd: Union[None, str, os.PathLike[str]] = None,
        env: Optional[Mapping[str, str]] = None,
        **options: Unpack[Options],
    ) -> subprocess.CompletedProcess[str]:
        """Runs a program, and waits until it ends. Its output is text in `stdout`, standard error included.

        Raises AssertionError, with the output, if the program fails and `check` is true.
        """
        all_options, line = self._prepare(program, options)
        done = run(
            program,
            timeout=timeout,
            cwd=cwd,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            **all_options,
        )
        (self.folder / f"{len(self.lines)}.output").write_text(done.stdout)
        if check and done.returncode != 0:
            raise AssertionError(f"{line}\nhas ended with {done.returncode}:\n{done.stdout}")
        return done

    def start(
        self,
        program: Program,
        *,
        listens: Optional[int] = None,
        timeout: float = 60.0,
        cwd: Union[None, str, os.PathLike[str]] = None,
        env: Optional[Mapping[str, str]] = None,
        **options: Unpack[Options],
    ) -> Process:
        """Starts a program; it is ended after the test. With `listens`, waits until that TCP port is listened on."""
        all_options, line = self._prepare(program, options)
        output_file = self.folder / f"{len(self.lines)}.output"
        with output_file.open("wb") as output:
            popen = start(program, cwd=cwd, env=env, stdout=output, stderr=subprocess.STDOUT, **all_options)
        process = Process(popen, line, output_file)
        self.processes.append(process)
        if listens is not None:
            process.wait_for_port(listens, timeout)
        return process

    def set_faults(self, *rules: str, seed: Optional[int] = None) -> None:
        """Gives all programs that are started from now on a fault plan of these rules, such as
        "drop chance=2% opcode=send"; without rules, none.

        Raises ValueError, with the reason, for a wrong rule.
        """
        checked = self._pumice(["run", *(f"--fault={rule}" for rule in rules), "--", "true"])
        if checked.returncode != 0:
            raise ValueError(checked.stderr.strip())
        self.options["fault"] = list(rules)
        self._before_plan = len(self.lines)
        if seed is not None:
            self.options["seed"] = seed

    def assert_faults_applied(self) -> None:
        """Raises AssertionError, with the rule, if a rule of the plan has applied to nothing in all programs that had it."""
        reports = [str(report) for report in self.fault_reports() if _by_number(report)[0] > self._before_plan]
        if not reports:
            raise AssertionError("no program that had the fault plan has ended")
        judged = self._pumice(["fault", "assert", *reports])
        if judged.returncode != 0:
            raise AssertionError((judged.stdout + judged.stderr).strip())

    def fault_reports(self) -> list[Path]:
        """What the fault plans did to each program so far."""
        return sorted(self.folder.glob("*.faults.jsonl"), key=_by_number)

    def captures(self) -> list[Path]:
        """The pcapng files of the programs so far."""
        return sorted(self.folder.glob("*.pcapng"), key=_by_number)

    def traces(self) -> list[Path]:
        """The traces of the programs so far."""
        return sorted(self.folder.glob("*.trace"), key=_by_number)

    def packets(self) -> list[dict[str, Any]]:
        """All packets of all captures, decoded by `pumice capture --json`."""
        found: list[dict[str, Any]] = []
        for capture in self.captures():
            decoded = self._pumice(["capture", "--json", str(capture)])
            if decoded.returncode != 0 and not decoded.stdout:
                raise ValueError(f"{capture}: {decoded.stderr.strip()}")
            found += [cast("dict[str, Any]", json.loads(line)) for line in decoded.stdout.splitlines()]
        return found

    @property
    def seed(self) -> int:
        """The seed of losses and fault plans; without the option `seed`, that of `pumice run`."""
        return self.options.get("seed", _DEFAULT_SEED)

    def verdict(self) -> list[str]:
        """What pumice says is wrong, each sentence once: why a queue pair failed, a call was refused, or a thread waits;
        with the option `checks` all findings, each with the innermost frame behind it."""
        said: dict[str, None] = {}
        for output in sorted(self.folder.glob("*.output"), key=_by_number):
            lines = output.read_text(errors="replace").splitlines()
            for line, behind in zip(lines, [*lines[1:], ""]):
                if line.startswith(_SAID) and not _is_summary(line):
                    frame = f" at {behind.strip()}" if behind.startswith("    ") else ""
                    said[line.removeprefix(_SAID) + frame] = None
        return list(said)

    def close(self) -> None:
        """Ends the programs that still run."""
        for process in reversed(self.processes):
            process.end()

    def explain(self) -> str:
        """What helps to understand a failure: the verdict, the seed, the commands and those that repeat them, their output, and
        where captures and a page are.

        Makes the page of `pumice trace view` of the traces, if there are some.
        """
        parts = [f"verdict: {sentence}" for sentence in self.verdict()] or ["verdict: pumice saw nothing wrong"]
        parts.append(f"seed: {self.seed}")
        parts += [f"replay: {line}" for line in self.replay_lines]
        parts += [f"$ {line}" for line in self.lines]
        for output in sorted(self.folder.glob("*.output"), key=_by_number):
            text = output.read_text(errors="replace").rstrip()
            if text:
                parts.append(f"--- output of command {output.stem}\n{text}")
        traces = [str(trace) for trace in self.traces()]
        page = self.folder / "trace.html"
        if traces and self._pumice(["trace", "view", *traces, "-o", str(page)]).returncode == 0:
            why = self._pumice(["trace", "why", *traces])
            parts.append(f"--- pumice trace why\n{why.stdout.rstrip()}\n--- page: {page}")
        parts += [f"--- capture: {capture}" for capture in self.captures()]
        return "\n".join(parts)

    def _prepare(self, program: Program, options: Mapping[str, Any]) -> tuple[Options, str]:
        number = len(self.lines) + 1
        given: dict[str, Any] = {**self.options, **options}
        merged: dict[str, Any] = {"trace": self.folder / f"{number}-%p.trace"}
        if self.is_recorded:
            given.setdefault("record", self.folder / f"{number}.record")
        # Each of several devices has an address.
        if "devices" not in given and "profile" not in given:
            merged["addr"] = self.address
        # A record has a capture and a report of its own.
        if "record" not in given:
            merged["capture"] = self.folder / f"{number}-%p.pcapng"
            if given.get("fault") or {"faults", "loss"} & given.keys():
                merged["fault_report"] = self.folder / f"{number}-%p.faults.jsonl"
        merged.update(given)
        all_options = cast(Options, {name: value for name, value in merged.items() if value is not None})
        line = shlex.join(command(program, **all_options))
        self.lines.append(line)
        if "record" in all_options:
            repeated = {name: value for name, value in all_options.items() if name in _REPEATED}
            again = command(program, **cast(Options, repeated))
            again[1:2] = ["replay", os.fspath(all_options["record"])]
            self.replay_lines.append(shlex.join(again))
        return all_options, line

    def _pumice(self, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(executable()), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            timeout=_COMMAND_SECONDS,
        )


def loopback_address(process: int, number: int) -> str:
    """An address of 127.0.0.0/8 for the test with this number in the process with this number.

    Tests of processes that run at the same time get different ones, unless the numbers of the processes are the
    same modulo 64516; up to 253 tests of one process do.
    """
    # 127.0 is left to other programs.
    return f"127.{1 + number % 253}.{1 + process // 254 % 254}.{1 + process % 254}"


def _is_summary(line: str) -> bool:
    """The last line of a check: what was found is in the lines before."""
    return line.startswith(f"{_SAID}check: ")


def _by_number(path: Path) -> tuple[int, str]:
    number = re.match(r"\d+", path.name)
    return (int(number.group()) if number else 0, path.name)


def _is_listening(port: int) -> bool:
    wanted = f":{port:04X}"
    for table in ("/proc/self/net/tcp", "/proc/self/net/tcp6"):
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[1].endswith(wanted) and fields[3] == _LISTENING:
                return True
    return False
