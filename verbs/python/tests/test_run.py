"""Programs on the device, as users of the module start them. ibv_rc_pingpong and ibv_devinfo are those of the system."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import pumice
from pumice.testing import Device

needs_programs = pytest.mark.skipif(
    shutil.which("ibv_rc_pingpong") is None, reason="there is no ibv_rc_pingpong: apt-get install ibverbs-utils"
)
PINGPONG = ["ibv_rc_pingpong", "-d", "pumice0", "-g", "0", "-c", "-n", "200"]


def pingpong(device: Device, port: int) -> str:
    """What the client prints."""
    command = [*PINGPONG, "-p", str(port)]
    server = device.start(command, listens=port)
    output = device.run([*command, device.address]).stdout
    assert server.wait() == 0, server.output
    return output


def test_the_module_finds_the_program_and_its_libraries() -> None:
    done = pumice.run([sys.executable, "-c", "import os; print(os.environ['LD_LIBRARY_PATH'])"], capture_output=True, check=True)
    folder = Path(done.stdout.strip().split(":")[0])
    assert (folder / "libibverbs.so.1").resolve().name == "libpumice.so"


def test_python_itself_takes_the_command_line() -> None:
    shown = subprocess.run([sys.executable, "-m", "pumice", "--version"], capture_output=True, text=True, check=True)
    assert shown.stdout.startswith("pumice ")


@needs_programs
def test_an_environment_is_enough_for_a_program() -> None:
    environment = pumice.env(addr=["127.3.4.5", "127.3.4.6"], devices=2, log="off")
    assert environment["PUMICE_DEVICES"] == "2" and environment["PUMICE_LOG"] == "off"
    shown = subprocess.run(["ibv_devices"], env=environment, capture_output=True, text=True, check=True).stdout
    assert "pumice0" in shown and "pumice1" in shown
    with pytest.raises(subprocess.CalledProcessError) as refused:
        pumice.env(loss="much")
    assert b"--loss much" in refused.value.stderr


@needs_programs
def test_a_pair_exchanges_messages_and_leaves_a_capture(pumice_device: Device, tmp_path: Path) -> None:
    assert "200 iters" in pingpong(pumice_device, 18611)
    assert len(pumice_device.captures()) == 2 and len(pumice_device.traces()) == 2
    packets = pumice_device.packets()
    assert len(packets) >= 4 * 200
    assert all(packet["icrc"] == "ok" for packet in packets if "icrc" in packet)


@needs_programs
def test_rules_of_faults_apply_and_wrong_ones_are_refused(pumice_device: Device) -> None:
    pumice_device.set_faults("drop opcode=send nth=3", seed=5)
    assert "200 iters" in pingpong(pumice_device, 18612)
    pumice_device.assert_faults_applied()
    with pytest.raises(ValueError, match="dropp"):
        pumice_device.set_faults("dropp nth=3")
    pumice_device.set_faults("drop opcode=read")
    pumice_device.run(["ibv_devinfo"])
    with pytest.raises(AssertionError, match="drop"):
        pumice_device.assert_faults_applied()


@needs_programs
@pytest.mark.pumice(devices=3)
def test_a_marker_gives_the_options(pumice_device: Device) -> None:
    shown = pumice_device.run(["ibv_devices"]).stdout
    assert [f"pumice{number}" in shown for number in range(4)] == [True, True, True, False]


def test_a_program_that_fails_fails_the_test_with_its_output(pumice_device: Device) -> None:
    with pytest.raises(AssertionError, match="has ended with 3") as failed:
        pumice_device.run(["sh", "-c", "echo why; exit 3"])
    assert "why" in str(failed.value)
    with pytest.raises(RuntimeError, match="before it listened"):
        pumice_device.start(["sh", "-c", "exit 4"], listens=1)


@needs_programs
def test_the_report_of_a_failed_test_explains_it(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.pumice(seed=9)
        def test_it(pumice_device):
            command = ["ibv_rc_pingpong", "-d", "pumice0", "-g", "0", "-n", "50", "-p", "18613"]
            server = pumice_device.start(command, listens=18613)
            pumice_device.run([*command, pumice_device.address])
            server.wait()
            still_runs = pumice_device.start(["sleep", "600"])
            assert False, "on purpose"

        def test_other(pumice_device):
            pumice_device.run(["true"])
        """
    )
    kept = pytester.path / "kept"
    result = pytester.runpytest_subprocess(f"--pumice-artifacts={kept}")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*pumice run --trace=*--seed=9*ibv_rc_pingpong*", "*50 iters*", "*kept in*test_it*"])
    (folder,) = kept.iterdir()
    names = {path.name for path in folder.iterdir()}
    assert "trace.html" in names and sum(name.endswith(".pcapng") for name in names) >= 2
    assert (folder / "trace.html").read_text().startswith("<!")


@needs_programs
def test_a_failure_has_its_verdict_its_seed_and_what_repeats_it(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.pumice(fault="complete status=retry-exceeded side=send message=3")
        def test_it(pumice_device):
            command = ["ibv_rc_pingpong", "-d", "pumice0", "-g", "0", "-n", "50", "-p", "18614"]
            server = pumice_device.start(command, listens=18614)
            pumice_device.run([*command, pumice_device.address])
        """
    )
    chosen = ["--pumice-seed=23", "--pumice-check", "--pumice-record"]
    result = pytester.runpytest_subprocess(*chosen, "--pumice-artifacts=kept")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "verdict: fault *: send request 3 ends with RETRY_EXC_ERR instead of success *",
            "seed: 23",
            "replay: *pumice replay */kept/*/1.record *--addr=127.* -- ibv_rc_pingpong *",
            "*again: pytest --pumice-seed=23 --pumice-check --pumice-record *::test_it",
        ]
    )
    # The command is one: it runs the client again, which finds no server.
    lines = [line.removeprefix("replay: ") for line in result.stdout.lines if line.startswith("replay: ")]
    assert len(lines) == 2
    again = subprocess.run(lines[1], shell=True, capture_output=True, text=True, cwd=pytester.path)
    assert again.returncode == 1 and "ibv_rc_pingpong" in lines[1], again.stderr
