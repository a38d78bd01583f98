"""Recomputes the ICRC of every RoCE packet of captures with scapy and compares it with the packet's own.

    scapy-icrc.py CAPTURE...

An independent judge: scapy shares no code with pumice, and it sees the whole IP header. The exit code is 1 if an
ICRC differs, if a capture cannot be read, or if a capture has no RoCE packet at all.
"""

import logging
import struct
import sys
import zlib

logging.getLogger("scapy").setLevel(logging.ERROR)

from scapy.error import Scapy_Exception  # noqa: E402
from scapy.layers import l2  # noqa: E402,F401  (registers the link types)
from scapy.layers.inet import IP, UDP  # noqa: E402
from scapy.layers.inet6 import IPv6  # noqa: E402
from scapy.contrib.roce import BTH  # noqa: E402
from scapy.utils import PcapReader  # noqa: E402

SHOWN_FAILURES = 10
FLUSH = 0x1C


def roce(frame):
    """The BTH of a frame, dissected from the IP packet alone (no link-layer trailer), or None."""
    for layer, header_bytes, length_of in ((IP, 0, lambda ip: ip.len), (IPv6, 40, lambda ip: ip.plen)):
        outer = frame.getlayer(layer)
        if outer is not None and outer.haslayer(UDP) and outer[UDP].dport == 4791:
            packet = layer(outer.original[: header_bytes + length_of(outer)])
            return packet.getlayer(BTH)
    return None


def rxe_flush(bth, icrc):
    """The ICRC that rdma_rxe gives a FLUSH request, and expects of one: the CRC goes on over the headers, which it
    takes for the payload (its opcode table has no payload offset for FLUSH), a second time and unmasked."""
    headers = bth.original[:-4]
    return struct.pack("<I", zlib.crc32(headers, struct.unpack("<I", icrc)[0]))


def judge(path):
    """Number of RoCE packets of a capture, and a list of what is wrong."""
    count, wrong = 0, []
    with PcapReader(path) as frames:
        for number, frame in enumerate(frames, start=1):
            bth = roce(frame)
            if bth is None:
                continue
            count += 1
            expected = bth.compute_icrc(None)
            found = struct.pack("!I", bth.icrc)
            if bth.opcode == FLUSH and found == rxe_flush(bth, expected):
                continue
            if expected != found:
                name = "%s psn %d" % (bth.sprintf("%BTH.opcode%"), bth.psn)
                wrong.append("frame %d (%s): %s, scapy says %s" % (number, name, found.hex(), expected.hex()))
    return count, wrong


def main(paths):
    if not paths:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    total, failed = 0, False
    for path in paths:
        try:
            count, wrong = judge(path)
        except (OSError, EOFError, Scapy_Exception) as error:
            count, wrong = 0, ["cannot be read: %s" % error]
        total += count
        if count == 0 and not wrong:
            wrong = ["there is no RoCE packet in it"]
        for text in wrong[:SHOWN_FAILURES]:
            print("%s: %s" % (path, text))
        if len(wrong) > SHOWN_FAILURES:
            print("%s: and %d more" % (path, len(wrong) - SHOWN_FAILURES))
        failed = failed or bool(wrong)
    print("scapy-icrc: %d packets in %d captures, %s" % (total, len(paths), "FAILED" if failed else "all right"))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
