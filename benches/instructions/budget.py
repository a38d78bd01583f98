"""The budget of a message: reads what valgrind's lackey traced of benches/instructions/messages.c from standard input, and prints
how many instructions and how many lines of memory each step takes.

budget.py PROGRAM OUTPUT [DETAIL]: the program, whose symbol `marks` divides the trace, and what it printed ("map" lines and the window). DETAIL is
a file for the functions and lines of source that most instructions come from.
"""

import collections
import re
import statistics
import subprocess
import sys

LINE_SHIFT = 6
# Inlined functions and their source lines, innermost first, of each address.
FRAMES = {}
# The upper half of addresses on the stack of a program's first thread, under valgrind.
STACK = 0x1F
PHASES = {1: "post receive", 2: "post send", 3: "receiver polls", 4: "sender polls"}
# The first that fits the innermost source file of this project that an instruction comes from.
STEPS = [
    ("the call: gate, arguments, objects of C", r"verbs/capi/"),
    ("lane: what sends and takes in one go", r"device/engine/src/engine/lane\.rs|transport/src/qp/(by_lane|lane|requester/lane)\.rs|objects/direct_delivery"),
    ("clock", r"device/platform/src/(outside/(time|clocks|answers)|clock)\.rs|messages\.c:clock_gettime"),
    ("who drives: lock, hand-over", r"device/engine/src/driver/"),
    ("post: checks, entry of the send queue", r"transport/src/qp/(post|send_queue)\.rs|device/engine/src/hca/|transport/src/types/"),
    ("packet: headers, parsing", r"transport/src/(wire/|qp/outbound\.rs|path)"),
    ("batch", r"device/engine/src/engine/batch\.rs|device/model/src/port/batch\.rs"),
    ("turns, deadlines, budget of the peer", r"device/engine/src/engine/(drive|transmit|timers|schedule|budget|queue_pairs|reply|entries|outages|frames)\.rs"),
    ("ring", r"device/fabric/src/(ring|system)/"),
    ("way to the ring", r"device/fabric/src/"),
    ("arrival: checks, queue pair", r"device/engine/src/engine/(dispatch|arrivals)\.rs|transport/src/qp/(receive|peer_port|congestion|migration)\.rs"),
    ("responder", r"transport/src/qp/(responder/|inbound)"),
    ("acknowledgement: sent, received", r"transport/src/qp/(response|completer|window)\.rs|requester/(complete|timers|forged)\.rs"),
    ("requester", r"transport/src/qp/"),
    ("memory: keys, copies", r"device/memory/src/|outside/fault_guard"),
    ("receive queue", r"device/engine/src/objects/(recv_queue|srq)\.rs"),
    ("completion queue", r"device/engine/src/objects/"),
    ("counters, events, decisions", r"device/model/src/(event/|counters)|transport/src/event|device/engine/src/(resources|decisions)/|engine/src/resources"),
    ("other code of the device", r"device/|transport/|verbs/"),
]


def marks_address(program):
    for line in subprocess.run(["nm", program], capture_output=True, text=True, check=True).stdout.splitlines():
        parts = line.split()
        if len(parts) == 3 and parts[2] == "marks":
            return int(parts[0], 16)
    sys.exit(f"budget.py: {program} has no symbol marks")


def read_window(base):
    """Rounds, each a list of (phase, instruction, line or None)."""
    rounds, phase, inside, current, ip = [], 5, False, None, 0
    marks = range(base, base + 16)
    for text in sys.stdin:
        kind = text[:3]
        if kind == "I  ":
            if not inside:
                continue
            ip = int(text[3 : text.index(",")], 16)
            if current is not None:
                current.append((phase, ip, None))
            continue
        if kind not in (" L ", " S ", " M "):
            continue
        comma = text.index(",")
        address = int(text[3:comma], 16)
        if address in marks:
            mark = address - base
            if mark == 6:
                inside = True
            elif mark == 7:
                return rounds
            elif mark == 8:
                current = []
                rounds.append(current)
            elif mark <= 5:
                phase = mark
            continue
        if current is not None:
            last = address + int(text[comma + 1 :]) - 1
            for line in range(address >> LINE_SHIFT, (last >> LINE_SHIFT) + 1):
                current.append((phase, ip, line))
    sys.exit("budget.py: the trace ends within the window")


def step_of(frames, path):
    for function, place in frames:
        file = place.rsplit(":", 1)[0]
        if file.endswith("messages.c"):
            file = f"messages.c:{function}"
        elif "/rustc/" in file or "/.cargo/" in file or "/registry/" in file or "/library/" in file:
            continue
        for name, pattern in STEPS:
            if re.search(pattern, file):
                return name
        if file.startswith("messages.c"):
            return None
    return f"C library: {frames[0][0]}" if "libpumice" not in path else "other code of the device"


def symbolised(addresses, maps):
    """Each address's step; None: the program itself."""
    steps, by_file = {}, collections.defaultdict(list)
    for address in addresses:
        for first, last, offset, path in maps:
            if first <= address < last:
                by_file[path].append((address, address - first + offset))
    for path, found in by_file.items():
        # Addresses in a file that is not at its own addresses begin with those of its segments.
        headers = subprocess.run(["readelf", "-lW", path], capture_output=True, text=True).stdout
        loads = [line.split() for line in headers.splitlines() if line.strip().startswith("LOAD")]
        def virtual(at):
            for load in loads:
                start, address, size = int(load[1], 16), int(load[2], 16), int(load[4], 16)
                if start <= at < start + size:
                    return at - start + address
            return at
        asked = "\n".join(hex(virtual(offset)) for _, offset in found)
        told = subprocess.run(["addr2line", "-a", "-f", "-i", "-C", "-e", path], input=asked, capture_output=True, text=True).stdout
        blocks = re.split(r"^0x[0-9a-f]+\n", told, flags=re.M)[1:]
        for (address, _), block in zip(found, blocks):
            lines = block.splitlines()
            frames = list(zip(lines[0::2], lines[1::2]))
            steps[address] = step_of(frames, path)
            FRAMES[address] = frames
    return steps


def write_detail(rounds, messages, at):
    """Instructions of a message by the function that they are in and by the lines that they come from."""
    functions, lines = collections.Counter(), collections.Counter()
    for _, ip, line in (entry for one in rounds for entry in one):
        if line is None and ip in FRAMES:
            frames = FRAMES[ip]
            functions[frames[-1][0]] += 1
            own = [f"{place} ({function})" for function, place in frames if "/rustc/" not in place]
            lines[own[0] if own else frames[0][0]] += 1
    with open(at, "w", encoding="utf-8") as out:
        for found in (functions, lines):
            for name, count in found.most_common(150):
                print(f"{count / messages:8.1f} {name}", file=out)
            print(file=out)


def weigh(one, steps):
    """A round: instructions by step and phase, and lines of memory by step; those of all steps together are those of None. Lines
    of the stack, which is always in the cache, do not count."""
    found, seen = collections.Counter(), set()
    for phase, ip, line in one:
        step = steps.get(ip, "other")
        if step is None or phase not in PHASES:
            continue
        if line is None:
            found[step, phase] += 1
        elif line >> (32 - LINE_SHIFT) != STACK:
            seen.update(((step, line), (None, line)))
    found.update((step, "lines") for step, _ in seen)
    return found


def main():
    program, output = sys.argv[1:3]
    maps = []
    with open(output, encoding="utf-8") as printed:
        for line in printed:
            parts = line.split()
            if parts[:1] == ["map"]:
                first, last = (int(part, 16) for part in parts[1].split("-"))
                maps.append((first, last, int(parts[3], 16), parts[6] if len(parts) > 6 else ""))
            elif len(parts) == 4:
                kind, messages, polls, readings = parts[0], int(parts[1]), int(parts[2]), int(parts[3])
    rounds = TRACE
    steps = symbolised({ip for one in rounds for _, ip, _ in one}, maps)
    if len(sys.argv) > 3:
        write_detail(rounds, messages, sys.argv[3])
    # Of each round, and then the median: other threads of the process run now and then, in the same trace.
    by_round = [weigh(one, steps) for one in rounds]
    keys = {key for one in by_round for key in one}
    per = messages / len(rounds)
    figures = {key: statistics.median(one[key] for one in by_round) / per for key in keys}
    count = lambda name, phase: figures.get((name, phase), 0)
    touched = lambda name: figures.get((name, "lines"), 0)
    names = {name for name, _ in keys if name}
    total_of = lambda name: sum(count(name, phase) for phase in PHASES)
    print(f"{kind}: {polls / messages:.2f} calls of ibv_poll_cq, {readings / messages:.2f} readings of the clock")
    heads = list(PHASES.values())
    print("| step | instructions | " + " | ".join(heads) + " | lines of memory |")
    print("|---|" + "---:|" * (len(heads) + 2))
    for name in sorted(names, key=total_of, reverse=True):
        if total_of(name) < 0.5:
            continue
        cells = [f"{count(name, phase):.0f}" if count(name, phase) else "" for phase in PHASES]
        print(f"| {name} | {total_of(name):.0f} | " + " | ".join(cells) + f" | {touched(name):.1f} |")
    sums = [f"{sum(count(name, phase) for name in names):.0f}" for phase in PHASES]
    print(f"| **all** | {sum(map(total_of, names)):.0f} | " + " | ".join(sums) + f" | {touched(None):.1f} |")


if __name__ == "__main__":
    # The trace first: the program prints its maps at its end.
    TRACE = read_window(marks_address(sys.argv[1]))
    for _ in sys.stdin:
        pass
    main()
