"""Mooncake's transfer engine between two network namespaces: reads, writes and batches, every byte compared.

mooncake_pair.py target|initiator OWN_ADDRESS RENDEZVOUS_FOLDER
"""
import pathlib
import sys
import time

import numpy
from mooncake.engine import TransferEngine

BYTES = 16 << 20
role, own, folder = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])


def random(seed, length):
    return numpy.random.default_rng(seed).integers(0, 256, length, dtype=numpy.uint8)


def wait_for(path):
    end = time.monotonic() + 60
    while not path.exists():
        if time.monotonic() > end:
            sys.exit(f"{path.name} did not come")
        time.sleep(0.02)


def check(what, holds):
    if not holds:
        sys.exit(f"{role}: {what} is wrong")


engine = TransferEngine()
check("initialize", engine.initialize(f"{own}:12345", "P2PHANDSHAKE", "rdma", "") == 0)
memory = numpy.zeros(BYTES, dtype=numpy.uint8)
check("register_memory", engine.register_memory(memory.ctypes.data, BYTES) == 0)
half = BYTES // 2
if role == "target":
    memory[:] = random(1, BYTES)
    offer = folder / "offer.new"
    offer.write_text(f"{own}:{engine.get_rpc_port()} {memory.ctypes.data}")
    offer.rename(folder / "offer")
    wait_for(folder / "done")
    check("what the peer wrote", numpy.array_equal(memory[half:], random(2, half)))
    check("what the peer left alone", numpy.array_equal(memory[:half], random(1, BYTES)[:half]))
else:
    wait_for(folder / "offer")
    peer, address = (folder / "offer").read_text().split()
    there, here = int(address), memory.ctypes.data
    check("read", engine.transfer_sync_read(peer, here, there, BYTES) == 0)
    check("what was read", numpy.array_equal(memory, random(1, BYTES)))
    memory[:half] = random(2, half)
    check("write", engine.transfer_sync_write(peer, here, there + half, half) == 0)
    memory[:] = 0
    sizes = numpy.random.default_rng(3).integers(1, 200000, 64)
    starts = numpy.concatenate(([0], numpy.cumsum(sizes)[:-1]))
    whole = int(sizes.sum())
    check("the sizes of the batch", whole <= BYTES)
    places = lambda base: [base + int(start) for start in starts]
    lengths = [int(size) for size in sizes]
    check("batch", engine.batch_transfer_sync_read(peer, places(here), places(there), lengths) == 0)
    expected = numpy.concatenate((random(1, BYTES)[:half], random(2, half)))
    check("what the batch read", numpy.array_equal(memory[:whole], expected[:whole]))
    (folder / "done").write_text("")
check("unregister_memory", engine.unregister_memory(memory.ctypes.data) == 0)
print("verified", flush=True)
