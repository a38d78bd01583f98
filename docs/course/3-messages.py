# Chapter 3: one end sends three messages, the other receives them. "none" posts no receive.
import sys

from ends import End, open_first_device

with open_first_device() as context:
    sender, receiver = End(context), End(context)
    sender.connect(receiver, rnr_retry=3)
    receiver.connect(sender, rnr_retry=3)
    if sys.argv[1:] != ["none"]:
        for k in range(3):
            receiver.post_receive(k * 64, 64, wr_id=k)
    for k in range(3):
        text = f"message {k}"
        sender.mr.write(text, len(text), k * 64)
        sender.post_send(k * 64, len(text), wr_id=k)
    for k in range(3):
        sender.poll()
        wc = receiver.poll()
        text = receiver.mr.read(wc.byte_len, wc.wr_id * 64).decode()
        print(f"receive {wc.wr_id}: {wc.byte_len} bytes: {text}")
    sender.close()
    receiver.close()
