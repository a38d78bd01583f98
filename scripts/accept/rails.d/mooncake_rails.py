"""Mooncake's transfer engine on all devices that it finds: one batch of writes, BYTES in pieces of 4 MiB, every byte compared
by the target. (It carries each request of a batch on one device.)

mooncake_rails.py target|initiator RENDEZVOUS_FOLDER BYTES

The last line of a process that succeeded begins with "verified". The initiator says "transfer returned N" when it failed.
"""
import json
import pathlib
import sys
import time

import numpy
from mooncake.engine import TransferEngine

PIECE = 4 << 20
role, folder, length = sys.argv[1], pathlib.Path(sys.argv[2]), int(sys.argv[3])


def wait_for(path):
    end = time.monotonic() + 100
    while not path.exists():
        if time.monotonic() > end:
            sys.exit(f"{role}: {path.name} did not come")
        time.sleep(0.02)


def say(name, text=""):
    """The file is whole when it has its name."""
    fresh = folder / f"{name}.new"
    fresh.write_text(text)
    fresh.rename(folder / name)


def check(what, holds):
    if not holds:
        sys.exit(f"{role}: {what} is wrong")


engine = TransferEngine()
check("initialize", engine.initialize("127.0.0.1:12345", "P2PHANDSHAKE", "rdma", "") == 0)
found = json.loads(engine.get_local_topology())
devices = sorted({device for lists in found.values() for names in lists for device in names})
print("topology", *devices, flush=True)
memory = numpy.zeros(length, dtype=numpy.uint8)
expected = numpy.random.default_rng(1).integers(0, 256, length, dtype=numpy.uint8)
if role == "initiator":
    memory[:] = expected
check("register_memory", engine.register_memory(memory.ctypes.data, length) == 0)
if role == "target":
    say("offer", f"127.0.0.1:{engine.get_rpc_port()} {memory.ctypes.data}")
    wait_for(folder / "done")
    if (folder / "done").read_text() == "0":
        check("what the peer wrote", numpy.array_equal(memory, expected))
else:
    wait_for(folder / "offer")
    peer, address = (folder / "offer").read_text().split()
    begun = time.monotonic()
    starts = range(0, length, PIECE)
    returned = engine.batch_transfer_sync_write(
        peer,
        [memory.ctypes.data + start for start in starts],
        [int(address) + start for start in starts],
        [min(PIECE, length - start) for start in starts],
    )
    print(f"transfer returned {returned} after {time.monotonic() - begun:.1f} s", flush=True)
    say("done", str(returned))
    check("the write", returned == 0)
print(f"verified {length} bytes", flush=True)
