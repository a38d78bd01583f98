# Chapter 4: WRITE, READ and FETCH_AND_ADD. The peer does nothing. "key" uses a wrong key.
import sys

import pyverbs.enums as e
from ends import ALL, End, open_first_device
from pyverbs.wr import SendWR

with open_first_device() as context:
    asker, owner = End(context), End(context, access=ALL)
    asker.connect(owner)
    owner.connect(asker)
    address, rkey = owner.mr.buf, owner.mr.rkey + (sys.argv[1:] == ["key"])

    def ask(opcode, at, length):
        return SendWR(opcode=opcode, sg=[asker.place(at, length)], num_sge=1)

    asker.mr.write("written by the asker", 20, 0)
    write = ask(e.IBV_WR_RDMA_WRITE, 0, 20)
    write.set_wr_rdma(rkey, address + 64)
    asker.qp.post_send(write)
    asker.poll()

    read = ask(e.IBV_WR_RDMA_READ, 64, 20)
    read.set_wr_rdma(rkey, address + 64)
    asker.qp.post_send(read)
    asker.poll()
    print("read back:", asker.mr.read(20, 64).decode())

    for _ in range(3):
        add = ask(e.IBV_WR_ATOMIC_FETCH_AND_ADD, 128, 8)
        add.set_wr_atomic(rkey, address, 10, 0)
        asker.qp.post_send(add)
        asker.poll()
        print("the counter was", int.from_bytes(asker.mr.read(8, 128), sys.byteorder))
    asker.close()
    owner.close()
