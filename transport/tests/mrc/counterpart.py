#!/usr/bin/env python3
"""Builds and parses packets of MRC by the fact sheet, with nothing of pumice.

Each line of the input is "parse FLOW HEX" or "build FLOW NAME=NUMBER ... payload=HEX", where FLOW is v4 or v6 with
the UDP source port, as "v6:49443". The answer to the first is what the second has, and the other way round. A packet
is all that UDP carries: BTH, headers, data, pad and ICRC. Every number is decimal.
"""

import socket
import struct
import sys
import zlib

# Section 2.2: opcode -> headers behind the BTH.
WRITES = {0xC6: False, 0xC7: False, 0xC8: False, 0xC9: True, 0xCA: False, 0xCB: True}
ACK, REQUEST, RESPONSE, SACK, NACK, PROBE = 0xD1, 0xD8, 0xD9, 0xDC, 0xDD, 0xDE

HOSTS = {
    "v4": (socket.AF_INET, "192.0.2.1", "192.0.2.2"),
    "v6": (socket.AF_INET6, "fd00::1", "fd00::2"),
}
PORT = 4791


def icrc(flow, body):
    """Section 2.7: as in RoCEv2. What changes on the way counts as ones."""
    kind, port = flow.split(":")
    family, source, destination = HOSTS[kind]
    source, destination = socket.inet_pton(family, source), socket.inet_pton(family, destination)
    udp_length = 8 + len(body) + 4
    if kind == "v4":
        ip = struct.pack(">BBHHHBBH", 0x45, 0xFF, 20 + udp_length, 0, 0x4000, 0xFF, 17, 0xFFFF) + source + destination
    else:
        ip = b"\x6f\xff\xff\xff" + struct.pack(">HBB", udp_length, 17, 0xFF) + source + destination
    udp = struct.pack(">HHHH", int(port), PORT, udp_length, 0xFFFF)
    masked = body[:4] + b"\xff" + body[5:]
    return struct.pack("<I", zlib.crc32(b"\xff" * 8 + ip + udp + masked))


def u24(number):
    return struct.pack(">I", number)[1:]


def stamp(f):
    return struct.pack(">HBB", f["stamp"], f["tsr"] << 7, 1)


def seth(f):
    """Section 2.5, SETH and CC_STATE. The 16 bits of the offset are the probe's number if pr is 1."""
    flags = f["m"] << 5 | f["pr"] << 1
    head = struct.pack(">BBHIHHB", 0, flags, f["offset"] & 0xFFFF, f["entropy"], f["spdcid"], f["dpdcid"], 0)
    cc = f["cc_type"] << 4 | f["cc_fl"]
    tail = struct.pack(">BBhQ", cc, f["mpr"], f["sack_offset"], f["bitmap"])
    state = struct.pack(">HHB", f["stamp"], f["ooo"], f["restore"] << 7 | f["penalty"]) + u24(f["rcvd"])
    return head + u24(f["cack"]) + tail + state


def neth(f):
    head = struct.pack(
        ">BBBBIHHB", 0, 0, f["reason"], f["vendor"], f["entropy"], f["spdcid"], f["dpdcid"], 0
    )
    return head + u24(f["nack_psn"]) + struct.pack(">BBH", 2 << 4 | f["cc_fl"], 0, f["stamp"])


def headers(f):
    op = f["op"]
    if op in WRITES:
        data = struct.pack(">HH", f["rqmsn"], f["msn"])
        data += stamp(f) if f["ts"] else b""
        data += struct.pack(">QII", f["va"], f["rkey"], f["dmalen"])
        return data + (struct.pack(">I", f["imm"]) if WRITES[op] else b"")
    if op == ACK:
        return struct.pack(">B", f["syndrome"]) + u24(f["ack_msn"])
    if op == REQUEST:
        return struct.pack(">BBBBII", 0, f["endpoint"], 0, f["vendor"], f["mask"], 0) + stamp(f)
    if op == RESPONSE:
        return struct.pack(">BB26xH6x", 0, f["endpoint"] << 2, f["stamp"])
    if op == SACK:
        return seth(f)
    if op == NACK:
        return neth(f)
    return struct.pack(">BBBBHHHH", 0, 0, 0, f["vendor"], f["probe"], 0, f["spdcid"], f["dpdcid"]) + stamp(f)


def build(flow, f):
    payload = f["payload"]
    pad = -len(payload) % 4
    bth = struct.pack(">BBH", f["op"], f["se"] << 7 | pad << 4, f["pkey"]) + b"\0" + u24(f["dqp"])
    bth += struct.pack(">B", f["a"] << 7 | f["rtx"] << 5 | f["ts"] << 4) + u24(f["psn"])
    body = bth + headers(f) + payload + bytes(pad)
    return body + icrc(flow, body)


class Reader:
    def __init__(self, data):
        self.data = data

    def take(self, form):
        size = struct.calcsize(form)
        if len(self.data) < size:
            raise ValueError("packet is cut off")
        part, self.data = self.data[:size], self.data[size:]
        return struct.unpack(form, part)

    def u24(self):
        high, low = self.take(">BH")
        return high << 16 | low

    def stamp(self):
        time, unit, _ = self.take(">HBB")
        return {"stamp": time, "tsr": unit >> 7}


def parse_control(op, r):
    if op == ACK:
        (syndrome,) = r.take(">B")
        return {"syndrome": syndrome, "ack_msn": r.u24()}
    first, flags = r.take(">BB")
    assert first == 0 and flags < 0x80, "another type of header"
    if op == REQUEST:
        _, vendor, mask, _ = r.take(">BBII")
        return {"endpoint": flags & 3, "vendor": vendor, "mask": mask, **r.stamp()}
    if op == RESPONSE:
        (time,) = r.take(">26xH6x")
        return {"endpoint": flags >> 2 & 3, "stamp": time}
    if op == PROBE:
        _, vendor, probe, _, spdcid, dpdcid = r.take(">BBHHHH")
        return {"vendor": vendor, "probe": probe, "spdcid": spdcid, "dpdcid": dpdcid, **r.stamp()}
    if op == NACK:
        reason, vendor, entropy, spdcid, dpdcid, _ = r.take(">BBIHHB")
        found = {"reason": reason, "vendor": vendor, "entropy": entropy, "spdcid": spdcid, "dpdcid": dpdcid}
        found["nack_psn"] = r.u24()
        cc, _, time = r.take(">BBH")
        assert cc >> 4 == 2, "another state of congestion control"
        return {**found, "cc_fl": cc & 15, "stamp": time}
    pr = flags >> 1 & 1
    offset, entropy, spdcid, dpdcid, _ = r.take(">HIHHB" if pr else ">hIHHB")
    found = {"m": flags >> 5 & 3, "pr": pr, "offset": offset, "entropy": entropy}
    found |= {"spdcid": spdcid, "dpdcid": dpdcid, "cack": r.u24()}
    cc, mpr, sack_offset, bitmap, time, ooo, penalty = r.take(">BBhQHHB")
    found |= {"cc_type": cc >> 4, "cc_fl": cc & 15, "mpr": mpr, "sack_offset": sack_offset, "bitmap": bitmap}
    return {**found, "stamp": time, "ooo": ooo, "restore": penalty >> 7, "penalty": penalty & 127, "rcvd": r.u24()}


def parse(flow, packet):
    body, check = packet[:-4], packet[-4:]
    assert icrc(flow, body) == check, "the ICRC is wrong"
    r = Reader(body)
    op, flags, pkey = r.take(">BBH")
    r.take(">B")
    f = {"op": op, "se": flags >> 7, "pkey": pkey, "dqp": r.u24()}
    (marks,) = r.take(">B")
    f |= {"a": marks >> 7, "rtx": marks >> 5 & 1, "ts": marks >> 4 & 1, "psn": r.u24()}
    if op in WRITES:
        f["rqmsn"], f["msn"] = r.take(">HH")
        if f["ts"]:
            f |= r.stamp()
        f["va"], f["rkey"], f["dmalen"] = r.take(">QII")
        if WRITES[op]:
            (f["imm"],) = r.take(">I")
    else:
        f |= parse_control(op, r)
    f["payload"] = r.data[: len(r.data) - (flags >> 4 & 3)]
    return f


def describe(f):
    return " ".join(f"{name}={value.hex() if name == 'payload' else value}" for name, value in f.items())


def fields(words):
    pairs = (word.split("=") for word in words)
    return {name: bytes.fromhex(value) if name == "payload" else int(value) for name, value in pairs}


def main():
    for line in sys.stdin:
        order, flow, *words = line.split()
        if order == "parse":
            print(describe(parse(flow, bytes.fromhex(words[0]))))
        else:
            print(build(flow, fields(words)).hex())


if __name__ == "__main__":
    main()
