"""Runs programs on pumice, an RDMA network adapter that consists of software only.

    import pumice

    pumice.run(["ibv_devinfo", "-v"], check=True)
    pumice.run(["./client", "localhost"], devices=2, seed=7, fault="drop chance=1%", capture="client.pcapng")

Programs that use libibverbs and librdmacm run unchanged. The fixtures for pytest are in `pumice.pytest_plugin`.
"""

from __future__ import annotations

from ._executable import PumiceNotFound, executable
from ._launch import command, env, run, start
from ._options import Options

__all__ = ["Options", "PumiceNotFound", "command", "env", "executable", "run", "start"]
