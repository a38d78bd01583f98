# Chapter 1: register memory, and print its keys.
import sys

from pyverbs.device import Context, get_device_list
from pyverbs.enums import IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_READ
from pyverbs.mr import MR
from pyverbs.pd import PD

size = int(sys.argv[1]) if len(sys.argv) > 1 else 4096
name = get_device_list()[0].name.decode()
print("device", name)
with Context(name=name) as context, PD(context) as pd:
    # The device may write here for this program. Peers may read here, and may not write.
    with MR(pd, size, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ) as mr:
        print(f"{mr.length} bytes: lkey 0x{mr.lkey:08x}, rkey 0x{mr.rkey:08x}")
