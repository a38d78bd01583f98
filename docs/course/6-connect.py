# Chapter 6: a connection by address. "server ADDRESS" waits for one client; "client ADDRESS WORD" sends a word.
import sys

import pyverbs.cm_enums as ce
import pyverbs.enums as e
from pyverbs.cmid import CMID, AddrInfo
from pyverbs.mr import MR
from pyverbs.qp import QPCap, QPInitAttr

SIZE = 64
is_server, address = sys.argv[1] == "server", sys.argv[2]
attr = QPInitAttr(e.IBV_QPT_RC, cap=QPCap(1, 1, 1, 1), sq_sig_all=1)


def good(wc):
    if wc is None or wc.status != e.IBV_WC_SUCCESS:
        raise SystemExit("a request did not end well")
    return wc


if is_server:
    info = AddrInfo(src=address, src_service="7471", port_space=ce.RDMA_PS_TCP, flags=ce.RAI_PASSIVE)
    listener = CMID(creator=info, qp_init_attr=attr)
    listener.listen()
    print("ready", flush=True)
    cmid = listener.get_request()
else:
    info = AddrInfo(dst=address, dst_service="7471", port_space=ce.RDMA_PS_TCP)
    cmid = CMID(creator=info, qp_init_attr=attr)
arrived = MR(cmid, SIZE, e.IBV_ACCESS_LOCAL_WRITE)
leaving = MR(cmid, SIZE, e.IBV_ACCESS_LOCAL_WRITE)
cmid.post_recv(arrived)  # the receive is there before the peer can send
if is_server:
    cmid.accept()
    good(cmid.get_recv_comp())
    word = arrived.read(SIZE, 0).upper()
else:
    cmid.connect()
    word = (sys.argv[3] if len(sys.argv) > 3 else "hello").encode().ljust(SIZE, b"\0")
leaving.write(word, SIZE)
cmid.post_send(leaving)
good(cmid.get_send_comp())
if not is_server:
    good(cmid.get_recv_comp())
    word = arrived.read(SIZE, 0)
print(word.rstrip(b"\0").decode())
cmid.disconnect()
for one in (arrived, leaving, cmid) + ((listener,) if is_server else ()):
    one.close()
