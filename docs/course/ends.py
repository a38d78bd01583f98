# What chapters 1 and 2 explain, for the programs of chapters 2 to 5: an end of a connection.
import pyverbs.enums as e
from pyverbs.addr import AHAttr, GlobalRoute
from pyverbs.cq import CQ, CompChannel
from pyverbs.device import Context, get_device_list
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

SIZE, REQUESTS = 4096, 32
ALL = (e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_READ
       | e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_ATOMIC)


def open_first_device():
    return Context(name=get_device_list()[0].name.decode())


class End:
    """Its own memory with these rights, its own completion queue, its own queue pair."""

    def __init__(self, context, access=e.IBV_ACCESS_LOCAL_WRITE, sq_sig_all=1):
        self.context, self.access = context, access
        self.pd = PD(context)
        self.channel = CompChannel(context)
        self.cq = CQ(context, 2 * REQUESTS, None, self.channel)
        self.mr = MR(self.pd, SIZE, access)
        cap = QPCap(max_send_wr=REQUESTS, max_recv_wr=REQUESTS)
        init = QPInitAttr(e.IBV_QPT_RC, scq=self.cq, rcq=self.cq, cap=cap, sq_sig_all=sq_sig_all)
        self.qp = QP(self.pd, init)

    def connect(self, peer, rnr_retry=7):
        attr = QPAttr(port_num=1)
        attr.qp_access_flags = self.access
        self.qp.to_init(attr)
        route = GlobalRoute(dgid=self.context.query_gid(1, 0), sgid_index=0, hop_limit=64)
        attr.ah_attr = AHAttr(port_num=1, is_global=1, gr=route)
        attr.path_mtu, attr.dest_qp_num = e.IBV_MTU_1024, peer.qp.qp_num
        attr.max_dest_rd_atomic, attr.min_rnr_timer = 1, 12
        self.qp.to_rtr(attr)
        attr.timeout, attr.retry_cnt, attr.rnr_retry, attr.max_rd_atomic = 14, 7, rnr_retry, 1
        self.qp.to_rts(attr)

    def place(self, at, length):
        return SGE(self.mr.buf + at, length, self.mr.lkey)

    def post_receive(self, at, length, wr_id=0):
        self.qp.post_recv(RecvWR(wr_id=wr_id, sg=[self.place(at, length)], num_sge=1))

    def post_send(self, at, length, wr_id=0, flags=0, number=None):
        opcode = e.IBV_WR_SEND if number is None else e.IBV_WR_SEND_WITH_IMM
        send = SendWR(wr_id=wr_id, opcode=opcode, sg=[self.place(at, length)], num_sge=1, send_flags=flags)
        if number is not None:
            send.imm_data = number
        self.qp.post_send(send)

    def poll(self):
        """Polls until one request of this end has ended."""
        while True:
            _, found = self.cq.poll()
            if found:
                return self.good(found[0])

    @staticmethod
    def good(wc):
        if wc.status != e.IBV_WC_SUCCESS:
            raise SystemExit(f"request {wc.wr_id} ended with status {wc.status}")
        return wc

    def close(self):
        for one in (self.qp, self.mr, self.cq, self.channel, self.pd):
            one.close()
