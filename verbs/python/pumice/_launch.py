"""Starting programs on the device."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any, Optional, Union

from ._executable import executable
from ._options import Options, arguments

if TYPE_CHECKING:
    from typing_extensions import Unpack

Program = Sequence[Union[str, "os.PathLike[str]"]]
Stream = Union[None, int, IO[Any]]

# Prints the environment that it has: names and values with a zero byte behind each pair.
_PRINT_ENVIRONMENT = r"import os; os.write(1, b''.join(b'%s=%s\0' % pair for pair in os.environb.items()))"


def command(program: Program, **options: Unpack[Options]) -> list[str]:
    """The command that runs a program, its name and arguments, on a device that the options describe."""
    if isinstance(program, (str, bytes, os.PathLike)):
        raise TypeError(f"program is {program!r}: give it a list of the program and its arguments")
    return [str(executable()), "run", *arguments(options), "--", *(os.fspath(word) for word in program)]


def run(
    program: Program,
    *,
    check: bool = False,
    capture_output: bool = False,
    text: bool = True,
    input: Union[None, str, bytes] = None,
    timeout: Optional[float] = None,
    cwd: Union[None, str, os.PathLike[str]] = None,
    env: Optional[Mapping[str, str]] = None,
    stdout: Stream = None,
    stderr: Stream = None,
    **options: Unpack[Options],
) -> subprocess.CompletedProcess[Any]:
    """Runs a program on the device, and waits until it ends; `pumice.Options` has the options of the device.

    The other arguments are those of `subprocess.run`, but output is text by default.

    Raises CalledProcessError if `check` is true and the program fails, TimeoutExpired after `timeout`
    seconds, PumiceNotFound without the program `pumice`. A wrong option is an exit code of 2, and a sentence on
    standard error.
    """
    return subprocess.run(
        command(program, **options),
        check=check,
        capture_output=capture_output,
        text=text,
        input=input,
        timeout=timeout,
        cwd=cwd,
        env=env,
        stdout=stdout,
        stderr=stderr,
    )


def start(
    program: Program,
    *,
    text: bool = True,
    cwd: Union[None, str, os.PathLike[str]] = None,
    env: Optional[Mapping[str, str]] = None,
    stdin: Stream = None,
    stdout: Stream = None,
    stderr: Stream = None,
    **options: Unpack[Options],
) -> subprocess.Popen[Any]:
    """Starts a program on the device, and does not wait.

    The process is the program itself: `pumice run` becomes it, so that signals and the exit code are its own.
    """
    return subprocess.Popen(
        command(program, **options), text=text, cwd=cwd, env=env, stdin=stdin, stdout=stdout, stderr=stderr
    )


def env(base: Optional[Mapping[str, str]] = None, **options: Unpack[Options]) -> dict[str, str]:
    """The environment in which programs use the device without `pumice run`: `base`, or that of this process,
    with LD_LIBRARY_PATH, LD_PRELOAD and the variables of pumice.

    For programs that other libraries start: subprocess.Popen(…, env=pumice.env()). This process itself cannot
    change to the device any more; start it by `pumice run -- python …`.

    Raises CalledProcessError, with the sentence in `stderr`, for an option that cannot be used.
    """
    printed = subprocess.run(
        command([sys.executable, "-I", "-S", "-c", _PRINT_ENVIRONMENT], **options),
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=base,
    )
    pairs = (pair.partition(b"=") for pair in printed.stdout.split(b"\0") if pair)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}
