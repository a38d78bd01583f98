//! The list of records, from which writing, reading and the names are generated.

use std::net::IpAddr;

use serde::Serialize;

use super::field::{ByteSink, RecordField};

/// Makes the enum of all records, with their numbers in the file.
macro_rules! records {
    ($(
        $(#[$doc:meta])* $number:literal $name:ident { $($(#[$field_doc:meta])* $field:ident: $kind:ty,)* }
    )*) => {
        /// An event in a trace. Queue pairs are named by their ordinal in the process (`qp`), PSNs are 24
        /// bits, and numbers of enums are those of verbs and of the wire.
        #[derive(Debug, Clone, Copy, PartialEq, Serialize)]
        #[serde(tag = "record")]
        #[non_exhaustive]
        pub enum Record<'a> {
            $($(#[$doc])* $name { $($(#[$field_doc])* $field: $kind,)* },)*
        }

        impl<'a> Record<'a> {
            /// Returns the number of this kind of record in the file.
            pub const fn number(&self) -> u8 {
                match self { $(Record::$name { .. } => $number,)* }
            }

            /// Returns the name of this kind of record.
            pub const fn name(&self) -> &'static str {
                match self { $(Record::$name { .. } => stringify!($name),)* }
            }

            /// Appends the fields.
            #[inline]
            pub fn emit(&self, out: &mut impl ByteSink) {
                match self { $(Record::$name { $($field,)* } => { $($field.emit(out);)* })* }
            }

            /// Parses the fields of the record with this number. Bytes behind them, which a newer version has
            /// added, are ignored. `None` if the bytes are no such record.
            pub(super) fn parse(number: u8, bytes: &mut &'a [u8]) -> Option<Record<'a>> {
                match number {
                    $($number => Some(Record::$name { $($field: RecordField::parse(bytes)?,)* }),)*
                    _ => None,
                }
            }

            /// Reports whether this version knows a record with this number.
            pub(super) fn is_known(number: u8) -> bool {
                [$($number),*].contains(&number)
            }
        }
    };
}

records! {
    /// A queue pair was made.
    1 QpCreated {
        /// Ordinal of the queue pair.
        qp: u32,
        /// Number of the queue pair.
        qpn: u32,
        /// Completion queue of send requests, as its index in the table.
        send_cq: u32,
        /// Completion queue of receive requests, as its index in the table.
        recv_cq: u32,
        /// Transport service of the queue pair.
        service: &'a str,
    }
    /// A queue pair was destroyed.
    2 QpDestroyed {
        /// Ordinal of the queue pair.
        qp: u32,
    }
    /// The state of a queue pair changed.
    3 StateChanged {
        /// Ordinal of the queue pair.
        qp: u32,
        /// State before, as the number in verbs.
        from: u8,
        /// State after, as the number in verbs.
        to: u8,
        /// The side that changed the state: 0 the program, 1 the requester, 2 the responder, 3 the device.
        by: u8,
        /// Number of resets of the queue pair before.
        connection: u32,
        /// Address of the peer, if the queue pair is connected.
        peer: Option<IpAddr>,
        /// Queue pair number of the peer; 0 if the queue pair is not connected.
        peer_qpn: u32,
    }
    /// A send request was posted.
    4 SendPosted {
        /// Ordinal of the queue pair.
        qp: u32,
        /// Ordinal of the request since the queue pair was reset.
        message: u64,
        /// The `wr_id` of the request.
        wr_id: u64,
        /// Operation, as the number in verbs.
        opcode: u8,
        /// Length of the message in bytes.
        length: u32,
        /// PSN of its first packet.
        psn: u32,
        /// Number of PSNs that the request takes.
        packets: u32,
        /// The request makes a completion when it succeeds.
        signaled: bool,
    }
    /// A receive request was posted.
    5 RecvPosted {
        /// Ordinal of the queue pair.
        qp: u32,
        /// The `wr_id` of the request.
        wr_id: u64,
        /// Length of its buffers in bytes.
        bytes: u64,
    }
    /// A packet was given to the port.
    6 PacketSent {
        /// Ordinal of the queue pair that sent it.
        qp: u32,
        /// The sender: 0 requester, 1 responder, 2 congestion notification.
        side: u8,
        /// The message that the packet belongs to, or answers.
        message: u64,
        /// PSN of the packet.
        psn: u32,
        /// Transmission of this PSN, counted from 1.
        transmission: u32,
        /// Opcode on the wire.
        opcode: u8,
        /// Bytes from the BTH to the ICRC.
        length: u32,
        /// Number of the queue pair that the packet is addressed to.
        destination: u32,
    }
    /// A packet arrived, before anything was checked.
    7 PacketReceived {
        /// Ordinal of the queue pair that received it.
        qp: u32,
        /// PSN of the packet.
        psn: u32,
        /// Opcode on the wire.
        opcode: u8,
        /// Bytes from the BTH to the ICRC.
        length: u32,
        /// Number of the queue pair that sent it, if the packet is a datagram.
        source: Option<u32>,
    }
    /// The packets of a queue pair go to this address from now on.
    8 SendsTo {
        /// Ordinal of the queue pair.
        qp: u32,
        /// Address of this process from which they are sent.
        from: IpAddr,
        /// Address to which they are sent.
        to: IpAddr,
    }
    /// The packets for a queue pair come from this address from now on.
    9 ReceivesFrom {
        /// Ordinal of the queue pair.
        qp: u32,
        /// Address from which they come.
        from: IpAddr,
        /// Address of this process at which they arrive.
        to: IpAddr,
    }
    /// The peer has acknowledged more than before.
    10 Acknowledged {
        /// Ordinal of the queue pair that received the acknowledgement.
        qp: u32,
        /// The first PSN that is not acknowledged.
        before: u32,
    }
    /// A packet for a queue pair was dropped.
    11 Dropped {
        /// Ordinal of the queue pair.
        qp: u32,
        /// Name of the counter that counts the packet.
        counter: &'a str,
        /// Opcode on the wire.
        opcode: u8,
        /// PSN of the packet.
        psn: u32,
    }
    /// A request came after a gap in the PSNs.
    12 OutOfSequence {
        /// Ordinal of the queue pair that received it.
        qp: u32,
        /// PSN of the request.
        psn: u32,
        /// PSN that was expected.
        expected: u32,
    }
    /// A request came that was executed before.
    13 DuplicateRequest {
        /// Ordinal of the queue pair that received it.
        qp: u32,
        /// Opcode on the wire.
        opcode: u8,
        /// PSN of the request.
        psn: u32,
    }
    /// The responder queued a NAK.
    14 NakSent {
        /// Ordinal of the queue pair.
        qp: u32,
        /// Kind of the NAK: the syndrome byte in the AETH.
        syndrome: u8,
        /// PSN of the NAK.
        psn: u32,
    }
    /// A NAK came.
    15 NakReceived {
        /// Ordinal of the queue pair that received it.
        qp: u32,
        /// Kind of the NAK: the syndrome byte in the AETH.
        syndrome: u8,
        /// PSN of the NAK.
        psn: u32,
    }
    /// An answer showed that an earlier answer was lost.
    16 ImpliedNak {
        /// Ordinal of the queue pair that received it.
        qp: u32,
        /// PSN whose answer is missing.
        psn: u32,
    }
    /// A packet arrived that a switch had marked as congested.
    17 CongestionMarked {
        /// Ordinal of the queue pair that received it.
        qp: u32,
        /// PSN of the packet.
        psn: u32,
    }
    /// A congestion notification was sent.
    18 CnpSent {
        /// Ordinal of the queue pair that sent it.
        qp: u32,
    }
    /// A congestion notification arrived.
    19 CnpReceived {
        /// Ordinal of the queue pair that received it.
        qp: u32,
    }
    /// All packets from a PSN on are sent again.
    20 SentAgain {
        /// Ordinal of the queue pair that sends them.
        qp: u32,
        /// PSN of the first packet that is sent again.
        psn: u32,
        /// Number of PSNs that were under way.
        packets: u32,
        /// The reason: 0 timeout, 1 silence, 2 sequence NAK, 3 missing answer, 4 receiver not ready.
        why: u8,
    }
    /// The acknowledgement timer expired.
    21 TimedOut {
        /// Ordinal of the queue pair.
        qp: u32,
        /// The oldest PSN without an answer.
        psn: u32,
        /// Number of retries that are left.
        retries_left: u8,
        /// Attribute `timeout` of the queue pair.
        timeout: u8,
    }
    /// The peer was silent for longer than its answers take.
    22 FellSilent {
        /// Ordinal of the queue pair.
        qp: u32,
        /// The oldest PSN without an answer.
        psn: u32,
    }
    /// The acknowledgement timer expired, but the peer's process had not been scheduled on a processor.
    23 PeerStarved {
        /// Ordinal of the queue pair.
        qp: u32,
        /// The oldest PSN without an answer.
        psn: u32,
    }
    /// The peer had no receive request posted and sent an RNR NAK.
    24 ReceiverNotReady {
        /// Ordinal of the queue pair that received the NAK.
        qp: u32,
        /// PSN that the peer refused.
        psn: u32,
        /// Number of retries that are left; 7 means unlimited.
        retries_left: u8,
        /// Time for which nothing is sent, in ns.
        wait_ns: u64,
    }
    /// A request completed.
    25 Completed {
        /// Ordinal of the queue pair.
        qp: u32,
        /// Completion queue, as its index in the table.
        cq: u32,
        /// The `wr_id` of the request.
        wr_id: u64,
        /// Status, as the number in verbs.
        status: u8,
        /// Operation that completed, as the number in verbs.
        opcode: u8,
        /// Length of the message in bytes.
        bytes: u32,
        /// Number of send requests that this completion ends: the request and the unsignaled ones before it;
        /// 0 for a receive request.
        released: u32,
    }
    /// The program polled a completion.
    26 Polled {
        /// Completion queue, as its index in the table.
        cq: u32,
        /// Number of the queue pair.
        qpn: u32,
        /// The `wr_id` of the request.
        wr_id: u64,
        /// Status, as the number in verbs.
        status: u8,
        /// Operation that completed, as the number in verbs.
        opcode: u8,
    }
    /// An armed completion queue fired.
    27 CompletionEventRaised {
        /// Completion queue, as its index in the table.
        cq: u32,
    }
    /// The program got a completion event.
    28 CompletionEventDelivered {
        /// Completion queue, as its index in the table.
        cq: u32,
    }
    /// An asynchronous event was raised.
    29 AsyncEventRaised {
        /// Name of the event.
        event: &'a str,
        /// Number of the queue pair that the event is about, if it is about one.
        qpn: Option<u32>,
    }
    /// The program got an asynchronous event.
    30 AsyncEventDelivered {
        /// Name of the event.
        event: &'a str,
        /// Number of the queue pair that the event is about, if it is about one.
        qpn: Option<u32>,
    }
    /// A packet was dropped before it reached a queue pair.
    31 PacketDropped {
        /// Name of the counter that counts the packet.
        counter: &'a str,
        /// Address of the sender.
        source: IpAddr,
        /// Number of the queue pair that the packet was addressed to, if it could be parsed.
        qpn: Option<u32>,
        /// Opcode on the wire.
        opcode: u8,
        /// PSN of the packet.
        psn: u32,
    }
    /// A rule of a fault plan applied to an outgoing packet.
    32 FaultApplied {
        /// Name of the rule.
        rule: &'a str,
        /// Action of the rule, as a verb whose object is the packet.
        deed: &'a str,
        /// Ordinal of the queue pair; `None` for connection management.
        qp: Option<u32>,
        /// Class of the packet in fault plans.
        class: &'a str,
        /// The sender: 0 the requester, 1 the responder, 2 a congestion notification.
        side: u8,
        /// The message that the packet belongs to, or answers.
        message: u64,
        /// Number of packets of this direction before it.
        packet: u64,
        /// Transmission of the packet, counted from 1.
        transmission: u32,
        /// The packet was not given to the network.
        lost: bool,
    }
    /// A rule applied to something other than a packet, or changed; in words.
    33 FaultNoted {
        /// A sentence that says what the rule did.
        text: &'a str,
    }
    /// A message of connection management was given to the port.
    34 CmSent {
        /// Name of the message.
        message: &'a str,
        /// The receiver's id of the connection; 0 if the message has none.
        recipient: u32,
        /// Id of the service that it asks for.
        service: Option<u64>,
    }
    /// A message of connection management arrived.
    35 CmReceived {
        /// Name of the message.
        message: &'a str,
        /// The id of the connection on this side; 0 if the message has none.
        recipient: u32,
        /// Id of the service that it asks for.
        service: Option<u64>,
    }
    /// An event of a connection was raised, which the program gets.
    36 CmEvent {
        /// Name of the event.
        event: &'a str,
        /// The id of the connection on this side.
        id: u32,
        /// State of the connection after the event; empty if the connection is closed.
        state: &'a str,
    }
    /// A call of the program was refused.
    37 CallRefused {
        /// Name of the call.
        call: &'a str,
        /// Ordinal of the call among the calls of this name, if they are counted.
        ordinal: Option<u64>,
        /// The errno that the call returned.
        errno: i32,
        /// The reason, in words.
        why: &'a str,
    }
    /// A failure of a queue pair was logged, in words.
    38 Logged {
        /// Ordinal of the queue pair.
        qp: u32,
        /// A sentence that says what went wrong.
        text: &'a str,
    }
    /// The requester's measurements of the path; recorded at most once a millisecond.
    40 Measured {
        /// Ordinal of the queue pair.
        qp: u32,
        /// Smoothed round trip time in ns; 0 before the first sample.
        rtt_ns: u64,
        /// Number of request packets that may be unacknowledged.
        window_packets: u32,
        /// Number of request packets that were unacknowledged before the last acknowledgement.
        in_flight_packets: u32,
    }
    /// DCQCN changed the rate at which the queue pair sends.
    41 RateChanged {
        /// Ordinal of the queue pair.
        qp: u32,
        /// The current rate in bit/s.
        rate: u64,
        /// The target rate, to which the current rate grows, in bit/s.
        target: u64,
        /// The estimate of congestion (alpha), in units of 2^-20.
        alpha: u32,
    }
    /// The effect of a fault plan rule in machine-readable form, for the analysis of causes. It follows the
    /// record that says the same in words.
    42 FaultDetail {
        /// Name of the rule.
        rule: &'a str,
        /// Action of the rule: the number of a [`TracedFaultAction`](super::TracedFaultAction).
        what: u8,
        /// Ordinal of the queue pair, if the fault is about one.
        qp: Option<u32>,
        /// For packets, the sender as in `FaultApplied`; for completions, 0 is a send request and 1 a receive
        /// request.
        side: u8,
        /// Ordinal of the message, or of the request on its work queue.
        message: u64,
        /// Name of the call, the status, the answer or the incident, or the class of a packet of MRC without
        /// data; otherwise empty.
        subject: &'a str,
        /// Ordinal of the call, or of the event of the completion channel.
        ordinal: u64,
        /// Delay of the packet, of the completion or of the end of the call, in ns.
        delay_ns: u64,
        /// Duration of the fault, in ns; 0 if it has no end, or no duration.
        lasts_ns: u64,
    }
    /// The limits on what a queue pair may have under way.
    43 SendLimits {
        /// Ordinal of the queue pair.
        qp: u32,
        /// Number of requests that fit in its send queue.
        requests: u32,
        /// Number of READs and atomics that may be under way: the attribute `max_rd_atomic`.
        reads: u8,
    }
    /// The process, or the thread that writes the trace, was not scheduled on a processor for a time.
    44 Stalled {
        /// Time by which it resumed late, in ns.
        late_ns: u64,
    }
    /// The process was alive, and recorded nothing else for a while; or it ended here.
    45 Alive {}
    /// The emulated network of the device.
    46 Network {
        /// The link, as `PUMICE_LINK` writes it; empty if there is none.
        link: &'a str,
        /// The switches between the device and the network, in a word; empty if there are none.
        switches: &'a str,
    }
    /// The recording began here, while the program ran: earlier events are not in the trace.
    47 Began {}
    /// A queue pair existed when the recording began.
    48 QpFound {
        /// Ordinal of the queue pair.
        qp: u32,
        /// Number of the queue pair.
        qpn: u32,
        /// Completion queue of send requests, as its index in the table.
        send_cq: u32,
        /// Completion queue of receive requests, as its index in the table.
        recv_cq: u32,
        /// Transport service of the queue pair.
        service: &'a str,
        /// State, as the number in verbs.
        state: u8,
        /// Number of resets of the queue pair before.
        connection: u32,
        /// Address of the peer, if the queue pair is connected.
        peer: Option<IpAddr>,
        /// Queue pair number of the peer; 0 if the queue pair is not connected.
        peer_qpn: u32,
        /// Number of send requests that were posted before, and that no completion had ended.
        sends: u64,
        /// Number of receive requests on its own receive queue.
        receives: u32,
        /// Number of requests that fit in its send queue.
        requests: u32,
        /// Number of READs and atomics that may be under way: the attribute `max_rd_atomic`.
        reads: u8,
    }
    /// A completion queue held completions when the recording began.
    49 CqFound {
        /// Completion queue, as its index in the table.
        cq: u32,
        /// Number of completions that the program had not polled.
        waiting: u32,
    }
    /// The next packet of an MRC queue pair leaves by this path.
    50 PathTaken {
        /// Ordinal of the queue pair.
        qp: u32,
        /// UDP source port of the path, which is the low half of its entropy value.
        source_port: u16,
    }
    /// The paths that an MRC queue pair has in a plane when it begins to send.
    51 PathsMade {
        /// Ordinal of the queue pair.
        qp: u32,
        /// Number of the plane, from 0.
        plane: u8,
        /// Number of planes of the device.
        planes: u8,
        /// Number of paths.
        paths: u32,
    }
    /// The state of a path of an MRC queue pair changed.
    52 PathChanged {
        /// Ordinal of the queue pair.
        qp: u32,
        /// UDP source port of the path.
        source_port: u16,
        /// Plane of the path.
        plane: u8,
        /// New state: 0 GOOD, 1 SKIP, 2 ASSUMED_BAD, 3 DENIED.
        state: u8,
    }
    /// A packet of an MRC queue pair counts as lost, and is sent again by another path.
    53 PacketLost {
        /// Ordinal of the queue pair that sent it.
        qp: u32,
        /// PSN of the packet.
        psn: u32,
        /// UDP source port of the path that its last copy took.
        source_port: u16,
        /// Time since this copy was sent, in ns.
        age_ns: u64,
        /// How it was found: 0 later packets arrived, 1 a later probe was answered, 2 timeout, 3 trimmed, 4
        /// trimmed at the last hop, 5 refused.
        proof: u8,
    }
    /// The send request that was recorded before was posted inline: its payload was copied by the post.
    54 PostedInline {
        /// Ordinal of the queue pair.
        qp: u32,
        /// Ordinal of the request since the queue pair was reset.
        message: u64,
    }
    /// Memory of the process was registered.
    55 RegionRegistered {
        /// Length of the region in bytes.
        bytes: u64,
    }
    /// Records are missing here, because they came faster than they were written.
    39 Lost {
        /// Number of records that are missing.
        records: u64,
    }
}
