"""Checks a Chrome trace by its structure, and prints what it holds as one JSON object.

The file is read by Python's json, not by pumice's own reader. What Perfetto needs: numbers as times, spans of a
track that lie within each other or apart, and arrows with both ends, each inside of a span.
"""

import collections
import json
import sys

with open(sys.argv[1], encoding="utf-8") as file:
    trace = json.load(file)
events = trace["traceEvents"]
names = {}
spans = collections.defaultdict(list)
begins, ends = {}, {}
counters = collections.Counter()
for event in events:
    phase = event["ph"]
    assert isinstance(event["pid"], int), event
    if phase == "M":
        if event["name"] in ("process_name", "thread_name"):
            names[event["name"], event["pid"], event["tid"]] = event["args"]["name"]
        continue
    assert isinstance(event["ts"], (int, float)) and event["ts"] >= 0, event
    if phase == "X":
        assert event["dur"] >= 0, event
        spans[event["pid"], event["tid"]].append(event)
    elif phase == "s":
        assert event["id"] not in begins, event
        begins[event["id"]] = event
    elif phase == "f":
        assert event["id"] not in ends and event["bp"] == "e", event
        ends[event["id"]] = event
    elif phase == "C":
        counters[event["name"]] += 1
        assert event["args"]["value"] >= 0, event
    else:
        assert phase == "i" and event["s"] == "t", event
assert begins.keys() == ends.keys(), sorted(begins.keys() ^ ends.keys())[:10]
for number, begin in begins.items():
    assert begin["ts"] <= ends[number]["ts"], (begin, ends[number])


def nanoseconds(event):
    return round(event["ts"] * 1000), round((event["ts"] + event["dur"]) * 1000)


for (pid, tid), track in spans.items():
    assert ("thread_name", pid, tid) in names, (pid, tid)
    assert ("process_name", pid, 0) in names, pid
    open_until = []
    for event in sorted(track, key=lambda one: (nanoseconds(one)[0], -nanoseconds(one)[1])):
        start, end = nanoseconds(event)
        while open_until and open_until[-1] <= start:
            open_until.pop()
        assert not open_until or end <= open_until[-1], ("spans cross", event)
        open_until.append(end)

starts = {(one["pid"], one["tid"], one["ts"]) for one in begins.values()}
packets = [one for track in spans.values() for one in track if one["cat"] == "packet"]
for one in packets:
    sent = "transmission" in one["args"]
    drawn = (one["pid"], one["tid"], one["ts"]) in starts
    assert not sent or drawn or "arrival" in one["args"], one
requests = [one for track in spans.values() for one in track if one["cat"] == "send" and "args" in one]
print(
    json.dumps(
        {
            "processes": sorted(name for (what, _, _), name in names.items() if what == "process_name"),
            "requests": len(requests),
            "repeated": [one["args"] for one in requests if one["args"]["transmissions"] > 1],
            "arrows": len(begins),
            "across": sum(begin["pid"] != ends[number]["pid"] for number, begin in begins.items()),
            "packets": len(packets),
            "lost": [one["args"] for one in packets if one["name"].endswith(" lost")],
            "moments": sorted({one["name"] for one in events if one["ph"] == "i"}),
            "counters": sorted(counters),
        }
    )
)
