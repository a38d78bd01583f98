//! Every kind of fault, described for people: what it does, its fields, an example, what it imitates.

use pumice_model::fates::incident::IncidentKind;

/// A kind of fault.
#[derive(Debug, Clone, Copy)]
pub struct FaultKind {
    /// The name of the kind in plans.
    pub name: &'static str,
    /// A sentence that says what the kind does.
    pub does: &'static str,
    /// The fields of this kind: name and meaning, without the kinds of incidents that have the field.
    pub(crate) fields: &'static [(&'static str, &'static str)],
    /// The fields that select packets or calls.
    pub about: &'static [(&'static str, &'static str)],
    /// An example: a line with a rule of this kind.
    pub example: &'static str,
    /// The real-world cause that looks like this.
    pub imitates: &'static str,
}

/// The name of the kind whose rules are incidents.
pub(super) const EVENT: &str = "event";

impl FaultKind {
    /// Returns the fields of this kind, each with its meaning. The meaning of a field that only some kinds of
    /// incidents have names those kinds.
    pub fn meanings(&self) -> Vec<(&'static str, String)> {
        let of_event = self.name == EVENT;
        let meaning = |(name, meaning): &(&'static str, &'static str)| {
            let having = IncidentKind::ALL.iter().filter(|kind| of_event && kind.has(name));
            let words: Vec<&str> = having.map(|kind| kind.word()).collect();
            match words.split_last() {
                None => (*name, (*meaning).to_owned()),
                Some((word, [])) => (*name, format!("of {word}: {meaning}")),
                Some((last, words)) => (*name, format!("of {} and {last}: {meaning}", words.join(", "))),
            }
        };
        self.fields.iter().map(meaning).collect()
    }
}

/// The fields of every rule that say when it applies.
pub const WHEN: &[(&str, &str)] = &[
    ("chance", "to this share, by chance: 2%, 0.02"),
    ("nth", "to these, counted from 1 on each connection: 3, 3..10, 3..10+2, 3.."),
    ("every", "to every k-th"),
    ("burst-begin", "how likely a bad stretch begins with a packet; the rule applies in bad stretches"),
    ("burst-end", "how likely a bad stretch ends with a packet"),
    ("times", "at most so often on each connection"),
    ("device", "on the device of this name only, where a program has several; not of fail and slow"),
    (
        "after",
        "only after this has happened in the process: \"rule NAME\" (that rule applied), \"completions 100 \
         qp=0\" (work requests carried out), \"bytes 4096 qp=0\" (without qp on all queue pairs), \"call \
         ibv_reg_mr 3\" (calls made), \"event qp-fatal\" (given to the program), \"time 2s\"",
    ),
];

/// The fields of every rule about packets that select packets.
pub const SELECTOR: &[(&str, &str)] = &[
    ("tag", "tag of the process; * at the end stands for anything"),
    ("qp", "ordinals of queue pairs, from 0: 0, 0..3; of those that thread 2 made: 2:0"),
    ("connection", "how often the queue pair was reset before; connections of rdma_cm, from 0"),
    ("peer", "addresses of the receiver"),
    ("service", "rc, uc, ud, xrc, srd, dc, cm"),
    ("side", "requester, responder or notification"),
    (
        "opcode",
        "send, write, read, atomic, flush, read-response, atomic-response, ack, nak, rnr-nak, cnp, req, mra, \
         rej, rep, rtu, dreq, drep, sidr-req, sidr-rep",
    ),
    ("message", "ordinals of messages, from 0: 3, 3..10, 3.."),
    ("packet", "ordinals of packets of that direction, from 0"),
    ("transmission", "which transmission of the packet, from 1"),
    ("source-port", "UDP source ports, which are the paths of MRC: 49163, 49152..49167"),
    ("plane", "plane of MRC, and how many there are: 3/8"),
];

/// The fields of every rule about calls that select calls. They are counted in the process; with qp, on each
/// queue pair.
pub const CALLS_SELECTOR: &[(&str, &str)] = &[
    ("tag", "tag of the process; * at the end stands for anything"),
    ("call", "name of the call; * stands for any characters, and all these calls are counted together"),
    ("qp", "ordinals of queue pairs, from 0, of those that thread 2 made 2:0: calls on those only"),
    ("to", "of ibv_modify_qp: reset, init, rtr, rts, sqd, sqe or err: calls that go there, counted alone"),
];

/// The fields of every rule about completions that select completions. They are counted on each work queue of
/// each connection.
pub const COMPLETIONS_SELECTOR: &[(&str, &str)] = &[
    ("tag", "tag of the process; * at the end stands for anything"),
    ("qp", "ordinals of queue pairs, from 0: 0, 0..3; of those that thread 2 made: 2:0"),
    ("connection", "how often the queue pair was reset before, from 0"),
    ("side", "the work queue: send or receive"),
    ("opcode", "send, write, read, atomic, flush, bind, invalidate, recv, recv-write"),
    ("message", "ordinals of work requests on their work queue, from 0, unsignaled ones included"),
];

/// The fields of every rule about events of completion channels that select events. They are counted for each
/// completion queue.
pub const COMPLETION_EVENTS_SELECTOR: &[(&str, &str)] = &[
    ("tag", "tag of the process; * at the end stands for anything"),
    ("cq", "ordinals of completion queues, from 0: 0, 0..3; of those that thread 2 made: 2:0"),
];

/// All kinds of faults.
pub const KINDS: &[FaultKind] = &[
    FaultKind {
        name: "drop",
        does: "the packet is lost",
        fields: &[],
        about: SELECTOR,
        example: "drop chance=2% service=rc side=requester opcode=send qp=0 message=3..10",
        imitates: "a full queue of a switch, a dirty connector, a route that flaps",
    },
    FaultKind {
        name: "duplicate",
        does: "copies leave with the packet",
        fields: &[("copies", "how many [default: 1]")],
        about: SELECTOR,
        example: "duplicate chance=1% copies=2",
        imitates: "a link that is bonded wrongly, a switch that floods while it learns",
    },
    FaultKind {
        name: "delay",
        does: "the packet leaves later, and later packets may overtake it",
        fields: &[
            ("time", "1ms, or 1ms..3ms for any between"),
            ("mean", "of the normal distribution"),
            ("deviation", "of the normal distribution"),
            ("least", "of the Pareto distribution with shape 2, whose mean is twice as much"),
            ("correlation", "how much of the value is that of the packet before, where it is drawn"),
        ],
        about: SELECTOR,
        example: "delay chance=10% mean=500us deviation=100us correlation=25% opcode=ack",
        imitates: "a long queue, a path through another site, a receiver that is descheduled",
    },
    FaultKind {
        name: "reorder",
        does: "later packets leave before the packet",
        fields: &[
            ("packets", "how many [default: 1]"),
            ("within", "it waits no longer than this [default: 10ms]"),
        ],
        about: SELECTOR,
        example: "reorder every=100 packets=3",
        imitates: "packets sprayed over several paths",
    },
    FaultKind {
        name: "corrupt",
        does: "bits are flipped; the ICRC shows it, unless it is made right again",
        fields: &[
            ("bits", "how many [default: 1]"),
            ("bit", "the first one, from the BTH's first bit on (sealed: the payload's) [default: any]"),
            ("sealed", "true: in the payload only, with a right ICRC: silent corruption"),
        ],
        about: SELECTOR,
        example: "corrupt chance=0.1% bits=2 opcode=write",
        imitates: "a bad cable; sealed: bad memory in an adapter or a switch",
    },
    FaultKind {
        name: "truncate",
        does: "only a part of the packet arrives",
        fields: &[("bytes", "from the BTH on [default: any number]")],
        about: SELECTOR,
        example: "truncate nth=5 bytes=20 opcode=send",
        imitates: "a cut-through switch that gives a packet up in the middle",
    },
    FaultKind {
        name: "mark",
        does: "the packet arrives with the ECN bits CE",
        fields: &[],
        about: SELECTOR,
        example: "mark every=10 opcode=write",
        imitates: "a switch whose queue grows beyond its threshold",
    },
    FaultKind {
        name: "trim",
        does: "the packet's payload is cut off, and its DSCP says so: MRC answers with a NACK, other \
               services drop the rest",
        fields: &[("last-hop", "true: the switch of the last hop did it, and the path is not blamed")],
        about: SELECTOR,
        example: "trim chance=1% plane=5/8 opcode=write",
        imitates: "a switch that trims where its queue is full, so that the loss is known at once",
    },
    FaultKind {
        name: "reflect",
        does: "a SACK of MRC says something else of its path; other packets are as they were",
        fields: &[("mark", "none, skip-once or always-skip")],
        about: SELECTOR,
        example: "reflect mark=always-skip chance=5% opcode=ack",
        imitates: "a receiver that takes good paths for bad ones, or the other way round",
    },
    FaultKind {
        name: "note",
        does: "nothing happens to the packet; the report has it with its length, so that \"pumice fault \
               compare\" can say which message differed",
        fields: &[],
        about: SELECTOR,
        example: "note opcode=send,write,read",
        imitates: "nothing: it is evidence of what the program sent",
    },
    FaultKind {
        name: "answer",
        does: "the request does not leave, and its sender is refused as if by the peer; with=cnp: it leaves, \
               and its sender is told of congestion",
        fields: &[
            ("with", "rnr, sequence, access, operation, invalid-request or cnp"),
            ("timer", "of rnr: how long the sender waits at least, up to 655.36ms [default: 0.64ms]"),
        ],
        about: SELECTOR,
        example: "answer with=rnr timer=1.28ms times=3 qp=0 message=5",
        imitates: "a receiver that posts too late, a key that the peer has invalidated, a peer that fails",
    },
    FaultKind {
        name: "reject",
        does: "the request for a connection does not leave, and its sender gets a REJ as if from the peer",
        fields: &[
            (
                "reason",
                "consumer, no-qp, no-resources, timeout, unsupported, invalid-service-id, \
                 stale-connection, invalid-mtu or a number [default: consumer]",
            ),
            (
                "private-data",
                "what the peer says: a text, or bytes as 0x62757379, 148 at most [default: none]",
            ),
        ],
        about: SELECTOR,
        example: "reject reason=stale-connection connection=0 peer=192.0.2.7",
        imitates: "a service that is full or not there yet, a peer in TIMEWAIT of an earlier connection",
    },
    FaultKind {
        name: "unreachable",
        does: "the request for a connection (or of a service id) does not leave, and its sender gives up at \
               once, as after the last time-out: RDMA_CM_EVENT_UNREACHABLE",
        fields: &[],
        about: SELECTOR,
        example: "unreachable connection=0 peer=192.0.2.7",
        imitates: "a host that is down, without the minute that its absence takes",
    },
    FaultKind {
        name: EVENT,
        does: "before the request leaves, and when all before it is acknowledged, this happens to the \
               device; once in a process, unless times says more",
        fields: &[
            ("kind", IncidentKind::WORDS),
            ("cq", "completion queues that the process had made before [default: 0]"),
            ("srq", "shared receive queues made before [default: 0]"),
            ("gid", "the place in the GID table [default: 0]"),
            ("to", "the other place, which changes with it"),
            ("speed", "sdr, ddr, qdr, fdr10, fdr, edr, hdr, ndr, xdr [default: as before]"),
            ("port", "the port of the device, from 1 [default: 1]"),
            ("width", "lanes: 1, 2, 4, 8, 12 [default: as before]"),
            ("rate", "1Gbit; so and with the next four see docs/links.md [default: as before]"),
            ("delay", "20us [default: as before]"),
            ("jitter", "5us [default: as before]"),
            ("queue", "64KiB [default: as before]"),
            ("ecn", "16KiB, or 20KiB..200KiB@10% [default: as before]"),
            ("way", "egress, ingress or both [default: both]"),
            ("time", "for so long [default, but of freeze: for ever]"),
        ],
        about: SELECTOR,
        example: "event kind=port-down time=2s qp=0 message=100",
        imitates: "firmware that fails, a cable that is pulled, an address that was added, an adapter that \
                   restarts or falls off the bus",
    },
    FaultKind {
        name: "partition",
        does: "from the packet on, nothing passes to and from its peer, or the peers that the rule names",
        fields: &[("time", "for so long [default: for ever]")],
        about: SELECTOR,
        example: "partition nth=1 message=100 time=2s peer=192.0.2.7",
        imitates: "a cable that is pulled, a switch that restarts, a host that loses power",
    },
    FaultKind {
        name: "fail",
        does: "the call does nothing, and fails",
        fields: &[
            (
                "errno",
                "by name or number, any that Linux has: ENOMEM, 12, 524 [default: the call's most usual one]",
            ),
            ("force", "no longer needed: taken from older plans"),
        ],
        about: CALLS_SELECTOR,
        example: "fail call=ibv_reg_mr nth=2 errno=ENOMEM",
        imitates: "a limit of locked memory, an adapter that is out of objects, one that fell off the bus",
    },
    FaultKind {
        name: "slow",
        does: "the call takes longer",
        fields: &[("time", "how much: 5ms")],
        about: CALLS_SELECTOR,
        example: "slow call=ibv_modify_qp qp=0 time=5ms",
        imitates: "a kernel lock that is held, busy firmware, memory that must be pinned page by page",
    },
    FaultKind {
        name: "complete",
        does: "a work request that was carried out ends with another status, and its queue pair goes to the \
               error state that belongs to it",
        fields: &[
            (
                "status",
                "retry-exceeded, rnr-retry-exceeded, remote-access, remote-operation, local-protection, \
                 local-length, local-access, local-qp-operation, remote-invalid-request, bad-response, \
                 window-bind, flushed, fatal, general and the others of ibv_wc_status",
            ),
            ("vendor-err", "vendor_err of the completion [default: as the device's profile has it]"),
        ],
        about: COMPLETIONS_SELECTOR,
        example: "complete status=retry-exceeded vendor-err=129 qp=0 side=send message=100",
        imitates: "a peer that vanishes, a key that was taken away, an adapter that fails",
    },
    FaultKind {
        name: "late",
        does: "a completion comes later, and those behind it on its work queue not before it",
        fields: &[("time", "how much: 5ms"), ("until", "and not before this has happened; see after")],
        about: COMPLETIONS_SELECTOR,
        example: "late time=5ms qp=0 side=receive every=10",
        imitates: "a busy adapter, a bus under load, moderation of completions",
    },
    FaultKind {
        name: "late-event",
        does: "the event of a completion channel comes later than the completion that it tells of",
        fields: &[("time", "how much: 5ms")],
        about: COMPLETION_EVENTS_SELECTOR,
        example: "late-event time=5ms cq=0 every=3",
        imitates: "an interrupt that waits for a busy processor",
    },
    FaultKind {
        name: "merge-events",
        does: "the event of a completion channel waits for more completions, or a time, and comes once",
        fields: &[
            ("count", "completions of one event [default: 2]"),
            ("within", "it waits no longer than this [default: 10ms]"),
        ],
        about: COMPLETION_EVENTS_SELECTOR,
        example: "merge-events count=8 within=2ms cq=0..1",
        imitates: "an adapter that moderates its interrupts",
    },
];
