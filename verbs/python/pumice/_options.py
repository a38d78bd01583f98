"""Options of `pumice run` as keyword arguments."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypedDict, Union

Text = Union[str, int, float]
File = Union[str, "os.PathLike[str]"]


class Options(TypedDict, total=False):
    """Keyword arguments that describe the device. Each is the option of `pumice run` with that name.

    `pumice run --help` says what each of them does, and docs/run.md has more.
    """

    devices: int
    """Number of devices, 1 to 16, with an address each."""
    addr: Union[str, Sequence[str]]
    """The one local address of the device, such as 127.0.0.2; with `devices` one for each."""
    device: str
    """Name of the device, or of the first one: by default pumice0."""
    faults: File
    """Fault plan: a file, the name of a ready plan, or a report of faults."""
    fault: Union[str, Sequence[str]]
    """Rules of faults, such as "drop chance=2% opcode=send"."""
    fault_report: File
    """File that says what the rules did; it is a plan itself."""
    loss: Text
    """Share of packets that are lost on the way out: 0.01 or "1%"."""
    seed: int
    """Seed of losses and fault plans."""
    shuffle: int
    """Seed of what the specification leaves open, such as the order of completions."""
    tag: str
    """Name of the process in fault plans."""
    capture: File
    """pcapng file for every packet; %p stands for the process number."""
    trace: File
    """File for what happens to every message, for `pumice trace`; %p stands for the process number."""
    require: Union[str, Sequence[str]]
    """Requirements on the run, such as "rdma.bytes > 0"; if one is not met, the exit code is 1."""
    require_report: File
    """File for what became of the requirements."""
    require_format: Literal["text", "json", "sarif", "junit", "markdown", "github"]
    """Format of that file; by default its extension says it."""
    trace_limit: Text
    """Bytes that the trace has at most, such as "64MiB"."""
    record: File
    """Folder for what `pumice replay` needs."""
    wire: Literal["auto", "udp"]
    """What carries packets to this user's other processes on this host."""
    copy: Literal["auto", "cached", "streaming"]
    """How long messages are copied to this user's other processes on this host."""
    srd_order: Literal["seed", "in-order", "reverse"]
    """Order in which messages of SRD arrive, on a device that looks like EFA."""
    mrc: bool
    """Whether MRC carries what RC queue pairs WRITE, to peers that do the same."""
    planes: int
    """Planes between which the paths of MRC are divided."""
    mrc_port: Literal[4791, 4971]
    """UDP port that packets of MRC are sent to."""
    gid_index: int
    """Index of the first address in the GID table; recipes for ConnectX adapters say 3."""
    memlock: Union[bool, Text]
    """Limit on registered memory, such as "64KiB"; True: what `ulimit -l` shows."""
    hang_after: Union[str, Literal[0]]
    """Time after which pumice says what the program waits for in vain, such as "5s"; 0 turns it off."""
    rate: str
    """Rate of the link, such as "10Gbit"."""
    delay: str
    """Delay of the link, such as "5us"."""
    jitter: str
    """Random addition to the delay."""
    queue: Text
    """Queue in front of the link, such as "256KiB"."""
    ecn: Text
    """Length of that queue from which packets are marked."""
    topology: File
    """TOML file with the switches between this program and others that name equal ones."""
    profile: File
    """What the device looks like: a built-in profile, as `pumice run --help` lists them, or a TOML file."""
    log: Literal["off", "error", "warn", "info", "debug"]
    """What pumice explains on standard error."""
    checks: Union[bool, Literal["perf", "poison", "perf,poison"]]
    """Whether pumice reports what the program does wrong with verbs (`--check`)."""
    check_report: File
    """File for the findings; %p stands for the process number."""
    check_exit: int
    """Exit code of a program that ends with 0 and has findings."""
    fail_on: Union[str, Sequence[str]]
    """Findings that make such a run fail: error, warning, note or injected; by default warning."""
    suppress: File
    """File that names findings to leave out."""
    rsocket: bool
    """Whether the program's TCP sockets become rsockets."""
    sysfs: bool
    """Whether to fail where the program cannot be shown a /sys/class/infiniband."""
    no_neighbour: bool
    no_preload: bool
    """Whether to load nothing before the program."""


def arguments(options: Mapping[str, Any]) -> list[str]:
    """The options as `pumice run` takes them. An option that is None is left out.

    Raises TypeError for an option that is not there, and for a value of the wrong type.
    """
    made: list[str] = []
    for name, value in options.items():
        form = _FORMS.get(name)
        if form is None:
            raise TypeError(f"pumice has no option {name!r}; it has {', '.join(sorted(_FORMS))}")
        if value is not None:
            made += form(name, value)
    return made


def _text(name: str, value: object) -> list[str]:
    # A bool is an int for Python, but no number of devices.
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise TypeError(f"{name} is {value!r}: give it a string or a number")
    return [f"{_flag(name)}={value}"]


def _number(name: str, value: object) -> list[str]:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} is {value!r}: give it a whole number")
    return [f"{_flag(name)}={value}"]


def _file(name: str, value: object) -> list[str]:
    if not isinstance(value, (str, os.PathLike)):
        raise TypeError(f"{name} is {value!r}: give it a path")
    return [f"{_flag(name)}={os.fspath(value)}"]


def _listed(name: str, value: object) -> list[str]:
    return [f"{_flag(name)}={','.join(_strings(name, value))}"]


def _repeated(name: str, value: object) -> list[str]:
    return [f"{_flag(name)}={one}" for one in _strings(name, value)]


def _strings(name: str, value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    if not isinstance(value, Sequence) or not all(isinstance(one, str) for one in value):
        raise TypeError(f"{name} is {value!r}: give it a string or a list of strings")
    return list(value)


def _switch(name: str, value: object) -> list[str]:
    if not isinstance(value, bool):
        raise TypeError(f"{name} is {value!r}: give it True or False")
    return [_flag(name)] if value else []


def _checks(name: str, value: object) -> list[str]:
    if isinstance(value, bool):
        return ["--check"] if value else []
    return [f"--check={''.join(_strings(name, value))}"]


def _memlock(name: str, value: object) -> list[str]:
    if isinstance(value, bool):
        return ["--memlock"] if value else []
    return _text(name, value)


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


_FORMS: dict[str, Callable[[str, object], list[str]]] = {
    **dict.fromkeys(["devices", "seed", "shuffle", "check_exit", "gid_index", "planes", "mrc_port"], _number),
    **dict.fromkeys(["device", "loss", "tag", "trace_limit", "wire", "copy", "log", "srd_order"], _text),
    **dict.fromkeys(["hang_after", "require_format"], _text),
    **dict.fromkeys(["rate", "delay", "jitter", "queue", "ecn"], _text),
    **dict.fromkeys(["faults", "fault_report", "capture", "trace", "record", "topology", "profile"], _file),
    **dict.fromkeys(["check_report", "suppress", "require_report"], _file),
    **dict.fromkeys(["mrc", "no_neighbour", "rsocket", "sysfs", "no_preload"], _switch),
    "addr": _listed,
    "fail_on": _listed,
    "fault": _repeated,
    "require": _repeated,
    "checks": _checks,
    "memlock": _memlock,
}
