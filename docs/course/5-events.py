# Chapter 5: 1000 messages, and no more than the peer has room for. Each end sleeps until an event comes.
# Both ends are one thread here: pyverbs lets no other thread of Python go on while it waits for an event.
import socket

import pyverbs.enums as e
from ends import End, open_first_device

MESSAGES, WINDOW, PART = 1000, 16, 8


def completion(end):
    """The next completion. Where there is none: arm, poll once more, and only then sleep."""
    while True:
        _, found = end.cq.poll()
        if not found:
            end.cq.req_notify()
            _, found = end.cq.poll()
        if found:
            return end.good(found[0])
        end.channel.get_cq_event(end.cq)
        end.cq.ack_events(1)


with open_first_device() as context:
    sender, receiver = End(context, sq_sig_all=0), End(context, sq_sig_all=0)
    sender.connect(receiver, rnr_retry=0)
    receiver.connect(sender, rnr_retry=0)
    for _ in range(WINDOW):
        sender.post_receive(0, 64)
        receiver.post_receive(0, 64)
    sent, room, credits = 0, WINDOW, 0
    while sent < MESSAGES:
        # The sender: as many as there is room for. Only the last one is signaled.
        count = min(room, PART, MESSAGES - sent)
        for k in range(count):
            flags = e.IBV_SEND_SIGNALED if k == count - 1 else 0
            sender.post_send(64, 64, flags=flags, number=0)
        sent, room = sent + count, room - count
        # The receiver: each receive is posted again, and then there is room for so many more.
        for _ in range(count):
            completion(receiver)
            receiver.post_receive(0, 64)
        receiver.post_send(64, 64, flags=e.IBV_SEND_SIGNALED, number=count)
        completion(receiver)
        # The sender: its signaled request has ended, and so have those before it; more room has come.
        for wc in (completion(sender), completion(sender)):
            if wc.opcode & e.IBV_WC_RECV:
                room += socket.ntohl(wc.imm_data)
                credits += 1
                sender.post_receive(0, 64)
    print(f"{MESSAGES} messages, {credits} times more room")
    sender.close()
    receiver.close()
