"""Writes a trace whose texts try to become markup: hostile.py FILE. The format is that of docs/trace.md."""

import struct
import sys

BREAKOUT = '</script><script>window.hacked=1</script><!--\u2028"\\'
MARKUP = "<img src=x onerror=window.hacked=2>"


def number(value):
    """Seven bits a byte, lowest first."""
    data = bytearray()
    while value >= 0x80:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*data, value])


def text(value):
    data = value.encode()
    return number(len(data)) + data


def record(kind, fields):
    """A record 1000 ns after the one before; times are zigzag."""
    fields = number(2000) + fields
    return struct.pack("<BH", kind, len(fields)) + fields


def head():
    fields = b"".join(map(number, (4711, 1, 2, 1 << 20))) + b"".join(map(text, ("", BREAKOUT, MARKUP, "<b>")))
    fields += number(0)
    return b"pumitrc\n" + struct.pack("<HHQQI", 1, 1, 0, 0, 32 + len(fields)) + fields


def main(path):
    # A queue pair, a request on it, and a fault plan's sentence.
    queue_pair = b"".join(map(number, (0, 0x10, 0, 0))) + text(MARKUP)
    request = number(0) + number(7) + number((1 << 64) - 1) + b"\x02" + number(64) + number(5) + number(1) + b"\x01"
    with open(path, "wb") as file:
        file.write(head() + record(1, queue_pair) + record(4, request) + record(33, text(BREAKOUT)))


main(sys.argv[1])
