"""Two ranks of MPI (mpi4py) in a network namespace each: messages of many sizes and a reduction, every byte compared."""
import numpy
from mpi4py import MPI

world = MPI.COMM_WORLD
rank, peer = world.Get_rank(), 1 - world.Get_rank()
assert world.Get_size() == 2, "two ranks"


def random(seed, length):
    return numpy.random.default_rng(seed).integers(0, 256, length, dtype=numpy.uint8)


for length in (1, 100, 4096, 65537, 1 << 20, 4 << 20):
    came = numpy.zeros(length, dtype=numpy.uint8)
    world.Sendrecv(random(length + rank, length), peer, 7, came, peer, 7)
    assert numpy.array_equal(came, random(length + peer, length)), f"{length} bytes"
mine = numpy.arange(100000, dtype=numpy.int64) * (rank + 1)
total = numpy.zeros_like(mine)
world.Allreduce(mine, total)
assert numpy.array_equal(total, numpy.arange(100000, dtype=numpy.int64) * 3), "the reduction"
world.Barrier()
if rank == 0:
    print("verified", MPI.Get_library_version().split(",")[0].split("\n")[0], flush=True)
