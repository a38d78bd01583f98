# Draws the ladder of messages of a run as an SVG: python3 picture.py TITLE <FILE >PICTURE, where
# "pumice run --trace T -- PROGRAM" and "pumice trace list --json T" have made FILE. Time goes down, not to scale.
import json
import sys

PACKETS = {4: "SEND", 5: "SEND+imm", 10: "WRITE", 12: "READ request", 16: "READ response", 17: "ACK",
           18: "atomic response", 20: "FETCH_AND_ADD"}
STATES = ["RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"]
STEP, LEFT, RIGHT, WIDTH, MOST = 22, 250, 550, 800, 40


def words(record):
    """What an end does, or None."""
    kind = record["record"]
    if kind == "StateChanged":
        return STATES[record["from"]] + " → " + STATES[record["to"]]
    if kind == "RecvPosted":
        return f"posts a receive ({record['wr_id']})"
    if kind == "SendPosted":
        return f"posts a send ({record['wr_id']})"
    if kind == "ReceiverNotReady":
        return f"waits; retries left: {record['retries_left']}"
    if kind == "Completed":
        return f"completion ({record['wr_id']})" + ("" if record["status"] == 0 else f", status {record['status']}")
    return None


rows, under_way = [], []
for line in sys.stdin:
    record = json.loads(line)
    if record.get("qp") not in (0, 1):
        continue
    qp, said = record["qp"], words(record)
    if record["record"] == "PacketSent":
        name = PACKETS.get(record["opcode"], f"opcode {record['opcode']}")
        row = [qp, name, len(rows), None]
        rows.append(row)
        under_way.append((1 - qp, record["opcode"], record["psn"], row))
    elif record["record"] == "PacketReceived":
        for one in under_way:
            if one[:3] == (qp, record["opcode"], record["psn"]):
                under_way.remove(one)
                one[3][3] = len(rows)
                rows.append(None)
                break
    elif record["record"] == "NakSent" and record["syndrome"] & 0x60 == 0x20:
        rows.append([qp, "has no receive: answers RNR", len(rows), -1])
    elif said:
        rows.append([qp, said, len(rows), -1])
rows = rows[:MOST]
height = 70 + STEP * len(rows)
print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="13">')
print(f'<rect width="{WIDTH}" height="{height}" fill="white"/>')
print(f'<text x="{WIDTH / 2}" y="20" text-anchor="middle" font-weight="bold">{sys.argv[1]}</text>')
for x, name in ((LEFT, "queue pair 0"), (RIGHT, "queue pair 1")):
    print(f'<text x="{x}" y="42" text-anchor="middle">{name}</text>')
    print(f'<line x1="{x}" y1="50" x2="{x}" y2="{height - 8}" stroke="#888"/>')
for row in filter(None, rows):
    qp, name, begin, end = row
    x, y = (LEFT, RIGHT)[qp], 64 + STEP * begin
    if end == -1:
        anchor, at = ("end", x - 10) if qp == 0 else ("start", x + 10)
        print(f'<circle cx="{x}" cy="{y}" r="3"/><text x="{at}" y="{y + 4}" text-anchor="{anchor}">{name}</text>')
        continue
    is_lost = end is None
    to_x = (LEFT + RIGHT) / 2 if is_lost else (RIGHT, LEFT)[qp]
    to_y = y + STEP / 2 if is_lost else 64 + STEP * min(end, len(rows))
    colour = "#c00" if is_lost else "#06c"
    print(f'<line x1="{x}" y1="{y}" x2="{to_x}" y2="{to_y}" stroke="{colour}"/>')
    print(f'<circle cx="{to_x}" cy="{to_y}" r="4" fill="{colour}"/>')
    print(f'<text x="{(LEFT + RIGHT) / 2}" y="{(y + to_y) / 2 - 4}" text-anchor="middle" fill="{colour}">{name}</text>')
print("</svg>")
