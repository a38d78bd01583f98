"""NIXL's agents, on UCX, between two processes: a READ and a WRITE of 64 pieces, every byte compared.

nixl_pair.py target|initiator TARGET_ADDRESS TCP_PORT

The agents' metadata go through a connection of this program, not through NIXL's own listener: that one listens before the
agent has a backend, and what it is asked for by then is lost.
"""
import socket
import struct
import sys
import time

import numpy
from nixl_cu12._api import nixl_agent, nixl_agent_config

BYTES, PIECES = 8 << 20, 64
role, target, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
end = time.monotonic() + 50


def random(seed):
    return numpy.random.default_rng(seed).integers(0, 256, BYTES, dtype=numpy.uint8)


def until(what, holds):
    while not (found := holds()):
        if time.monotonic() > end:
            sys.exit(f"{role}: {what} did not happen")
        time.sleep(0.005)
    return found


def exchanged(connection, mine):
    """Sends the metadata of this agent, and returns those of the other."""
    connection.sendall(struct.pack("!I", len(mine)) + mine)
    with connection.makefile("rb") as stream:
        size, = struct.unpack("!I", stream.read(4))
        return stream.read(size)


agent = nixl_agent(role, nixl_agent_config(True, False, backends=["UCX"]))
memory = numpy.zeros(BYTES, dtype=numpy.uint8)
registered = agent.register_memory(agent.get_reg_descs([(memory.ctypes.data, BYTES, 0, "")], "DRAM"), backends=["UCX"])
piece = BYTES // PIECES
pieces = agent.get_xfer_descs([(memory.ctypes.data + at * piece, piece, 0) for at in range(PIECES)], "DRAM")
if role == "target":
    memory[:] = random(1)
    with socket.create_server(("", port)) as server:
        server.settimeout(end - time.monotonic())
        connection, _ = server.accept()
    with connection:
        agent.add_remote_agent(exchanged(connection, agent.get_agent_metadata()))
    agent.send_notif("initiator", agent.get_serialized_descs(pieces))
    until("the WRITE", lambda: agent.check_remote_xfer_done("initiator", b"WRITE"))
    if not numpy.array_equal(memory, random(2)):
        sys.exit("target: what was written is wrong")
    agent.send_notif("initiator", b"bye")
    time.sleep(0.5)
else:
    with socket.create_connection((target, port)) as connection:
        agent.add_remote_agent(exchanged(connection, agent.get_agent_metadata()))
    remote = agent.deserialize_descs(until("the target's list", lambda: agent.get_new_notifs().get("target"))[0])
    for operation in ("READ", "WRITE"):
        if operation == "WRITE":
            memory[:] = random(2)
        transfer = agent.initialize_xfer(operation, pieces, remote, "target", operation.encode())
        state = agent.transfer(transfer)
        while state != "DONE":
            if state == "ERR" or time.monotonic() > end:
                sys.exit(f"initiator: {operation} ended with {state}")
            state = agent.check_xfer_state(transfer)
        agent.release_xfer_handle(transfer)
        if operation == "READ" and not numpy.array_equal(memory, random(1)):
            sys.exit("initiator: what was read is wrong")
    until("the target's farewell", lambda: agent.get_new_notifs().get("target"))
print("verified", flush=True)
