"""Reads a trace of Perfetto's own format by Perfetto's own descriptors, and compares it with the same as JSON.

pftrace.py TRACE.pftrace TRACE.json prints what both hold as one JSON object.
"""

import collections
import json
import sys

from perfetto.protos.perfetto.trace import perfetto_trace_pb2

with open(sys.argv[1], "rb") as file:
    data = file.read()
trace = perfetto_trace_pb2.Trace()
assert trace.ParseFromString(data) == len(data)
with open(sys.argv[2], encoding="utf-8") as file:
    chrome = json.load(file)["traceEvents"]

Event = perfetto_trace_pb2.TrackEvent


def unknown(message):
    """Fields that the descriptors do not know."""
    count = len(perfetto_unknown(message))
    for field, value in message.ListFields():
        if field.message_type is not None:
            values = value if hasattr(value, "append") else [value]
            count += sum(unknown(one) for one in values)
    return count


def perfetto_unknown(message):
    from google.protobuf.unknown_fields import UnknownFieldSet

    return UnknownFieldSet(message)


tracks, open_slices, last = {}, collections.defaultdict(list), {}
names, counts, flows = collections.Counter(), collections.Counter(), [collections.Counter(), collections.Counter()]
values, notes = collections.defaultdict(list), 0
for place, packet in enumerate(trace.packet):
    assert unknown(packet) == 0, packet
    assert packet.trusted_packet_sequence_id == 1
    assert bool(packet.sequence_flags & 1) == (place == 0)
    if packet.HasField("track_descriptor"):
        track = packet.track_descriptor
        assert track.uuid not in tracks, track
        assert track.HasField("process") or track.parent_uuid in tracks, track
        tracks[track.uuid] = track
        continue
    event, at = packet.track_event, packet.timestamp
    track = tracks[event.track_uuid]
    counts[event.type] += 1
    if event.type != Event.TYPE_INSTANT:
        assert at >= last.get(event.track_uuid, 0), packet
        last[event.track_uuid] = at
    if event.type == Event.TYPE_SLICE_BEGIN:
        open_slices[event.track_uuid].append(at)
        names[event.name] += 1
        notes += len(event.debug_annotations)
        assert all(one.name and one.WhichOneof("value") for one in event.debug_annotations), event
        for flow, ids in zip(flows, (event.flow_ids, event.terminating_flow_ids)):
            flow.update(ids)
    elif event.type == Event.TYPE_SLICE_END:
        assert open_slices[event.track_uuid].pop() <= at
    elif event.type == Event.TYPE_COUNTER:
        assert track.HasField("counter") and event.counter_value >= 0, event
        values[track.parent_uuid >> 32, track.name].append((at, event.counter_value))
    else:
        assert event.type == Event.TYPE_INSTANT and event.name, event
assert not any(open_slices.values()), "slices without an end"
assert flows[0] == flows[1] and all(count == 1 for count in flows[0].values())

of = lambda phase: [one for one in chrome if one["ph"] == phase]
assert names == collections.Counter(one["name"] for one in of("X"))
assert counts[Event.TYPE_INSTANT] == len(of("i"))
assert len(flows[0]) == len(of("s"))
assert notes == sum(value is not None for one in of("X") for value in one.get("args", {}).values())
as_json = collections.defaultdict(list)
for one in of("C"):
    as_json[one["pid"], one["name"]].append((round(one["ts"] * 1000), one["args"]["value"]))
assert values == as_json, "counters differ"
processes = sorted(track.process.process_name for track in tracks.values() if track.HasField("process"))
assert processes == sorted(one["args"]["name"] for one in of("M") if one["name"] == "process_name")
print(json.dumps({"processes": processes, "slices": sum(names.values()), "bytes": len(data),
                  "tracks": len(tracks), "counters": sorted({name for _, name in values})}))
