"""Options as arguments, without a device."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

import pumice
from pumice._options import _FORMS, arguments
from pumice.testing import loopback_address


def test_each_kind_of_option_becomes_an_argument() -> None:
    assert arguments({"devices": 2, "loss": 0.01, "wire": "udp"}) == ["--devices=2", "--loss=0.01", "--wire=udp"]
    assert arguments({"addr": ["127.0.0.2", "127.0.0.3"]}) == ["--addr=127.0.0.2,127.0.0.3"]
    assert arguments({"fault": ["drop nth=1", "mark"]}) == ["--fault=drop nth=1", "--fault=mark"]
    assert arguments({"fault": "drop nth=1"}) == ["--fault=drop nth=1"]
    assert arguments({"capture": Path("a b.pcapng"), "trace": None}) == ["--capture=a b.pcapng"]
    assert arguments({"rsocket": True, "sysfs": False}) == ["--rsocket"]
    assert arguments({"checks": True}) == ["--check"]
    assert arguments({"memlock": True}) == ["--memlock"]
    assert arguments({"memlock": "64KiB", "gid_index": 3}) == ["--memlock=64KiB", "--gid-index=3"]
    assert arguments({"checks": "perf"}) == ["--check=perf"]


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"device_count": 2}, "no option 'device_count'"),
        ({"devices": "two"}, "devices is 'two'"),
        ({"devices": True}, "devices is True"),
        ({"fault": 7}, "fault is 7"),
        ({"sysfs": "yes"}, "sysfs is 'yes'"),
        ({"capture": 3}, "capture is 3"),
        ({"loss": [1]}, "loss is [1]"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, object], part: str) -> None:
    with pytest.raises(TypeError, match=re.escape(part)):
        arguments(options)


def test_the_options_are_those_of_the_program() -> None:
    shown = subprocess.run([str(pumice.executable()), "run", "--help"], capture_output=True, text=True, check=True).stdout
    program = set(re.findall(r"^\s+(?:-\w, )?--([a-z-]+)", shown, re.MULTILINE)) - {"help", "check-format"}
    own = {name.replace("_", "-").replace("checks", "check") for name in _FORMS}
    assert own == program
    assert set(pumice.Options.__annotations__) == set(_FORMS)


def test_a_program_is_a_list() -> None:
    with pytest.raises(TypeError, match="give it a list"):
        pumice.command("ibv_devinfo -v")
    assert pumice.command(["x", "-v"], seed=7)[1:] == ["run", "--seed=7", "--", "x", "-v"]


def test_a_chosen_program_must_be_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PUMICE_EXECUTABLE", str(tmp_path))
    with pytest.raises(pumice.PumiceNotFound, match="PUMICE_EXECUTABLE"):
        pumice.executable()


def test_tests_have_addresses_of_their_own() -> None:
    pairs = [(process, number) for process in range(4000, 4040) for number in range(50)]
    addresses = {loopback_address(process, number) for process, number in pairs}
    assert len(addresses) == len(pairs)
    for address in addresses:
        parts = [int(part) for part in address.split(".")]
        assert parts[0] == 127 and all(1 <= part <= 254 for part in parts[1:])
