"""Fixtures for pytest: tests of programs that use RDMA, on machines without it.

    def test_client(pumice_device):
        server = pumice_device.start(["./server", "-p", "18515"], listens=18515)
        pumice_device.run(["./client", "-p", "18515", pumice_device.address])
        assert server.wait() == 0

`@pytest.mark.pumice(devices=2, loss="1%", seed=7)` gives the options of the device, those of `pumice.Options`. If the test
fails, its report has what pumice says is wrong, the seed, the command that runs the test again, the commands of the test, their
output, why messages were slow, and where the captures and the page of the trace are.
"""

from __future__ import annotations

import itertools
import os
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from ._options import Options, arguments
from .testing import Device, Process, loopback_address

__all__ = ["Device", "Process", "pumice_device"]

_numbers = itertools.count()
_FAILED = pytest.StashKey[bool]()
_KEPT = pytest.StashKey[Device]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("pumice", "software RDMA devices")
    group.addoption(
        "--pumice-artifacts",
        metavar="FOLDER",
        help="keep captures, traces and output of programs of failed tests in this folder",
    )
    group.addoption("--pumice-seed", type=int, metavar="N", help="seed of losses and fault plans of all tests")
    group.addoption(
        "--pumice-check", action="store_true", help="look for what the programs do wrong with verbs (pumice check)"
    )
    group.addoption(
        "--pumice-record", action="store_true", help="record each program, so that `pumice replay` can run it again"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "pumice(**options): options of the test's software RDMA device, those of pumice.Options"
    )


@pytest.fixture
def pumice_device(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Device]:
    """A software RDMA device with an address of its own, for the programs of this test: a `pumice.testing.Device`."""
    options: dict[str, Any] = {}
    # The nearest marker counts most.
    for marker in reversed(list(request.node.iter_markers("pumice"))):
        if marker.args:
            raise pytest.UsageError("@pytest.mark.pumice takes keyword arguments only")
        options.update(marker.kwargs)
    seed = request.config.getoption("--pumice-seed")
    if seed is not None:
        options["seed"] = seed
    if request.config.getoption("--pumice-check"):
        options.setdefault("checks", True)
    arguments(options)
    folder = tmp_path_factory.mktemp("pumice")
    device = Device(folder, loopback_address(os.getpid(), next(_numbers)), cast(Options, options))
    device.is_recorded = request.config.getoption("--pumice-record")
    request.node.stash[_KEPT] = device
    try:
        yield device
    finally:
        device.close()
        if not request.node.stash.get(_FAILED, False):
            shutil.rmtree(folder, ignore_errors=True)


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Adds to the report of a failed test what explains it."""
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    device = item.stash.get(_KEPT, None)
    if device is None or call.when != "call" or not report.failed:
        return
    item.stash[_FAILED] = True
    # What still runs writes the end of its capture now.
    device.close()
    explanation = f"{device.explain()}\nagain: {_again(item, device)}"
    artifacts = item.config.getoption("--pumice-artifacts")
    if artifacts:
        name = "".join(letter if letter.isalnum() or letter in "-._" else "_" for letter in item.nodeid)
        kept = Path(artifacts).absolute() / name
        shutil.copytree(device.folder, kept, dirs_exist_ok=True)
        explanation = explanation.replace(str(device.folder), str(kept)) + f"\n--- kept in {kept}"
    report.sections.append(("pumice", explanation))


def _again(item: pytest.Item, device: Device) -> str:
    """The command that runs this test again, with the same seed."""
    chosen = [f"--pumice-{name}" for name in ("check", "record") if item.config.getoption(f"--pumice-{name}")]
    return shlex.join(["pytest", f"--pumice-seed={device.seed}", *chosen, item.nodeid])
