//! The records: one list, from which writing, reading and the names follow.

use std::net::IpAddr;

use serde::Serialize;

use super::field::{Field, Out};

/// Makes the enum of all records, with their numbers in the file.
macro_rules! records {
    ($(
        $(#[$doc:meta])* $number:literal $name:ident { $($(#[$field_doc:meta])* $field:ident: $kind:ty,)* }
    )*) => {
        /// What happened. Queue pairs are named by their ordinal in the process (`qp`), PSNs are the low 24
        /// bits of numbers, and numbers of enums are those that verbs and the wire have for them.
        #[derive(Debug, Clone, Copy, PartialEq, Serialize)]
        #[serde(tag = "record")]
        #[non_exhaustive]
        pub enum Record<'a> {
            $($(#[$doc])* $name { $($(#[$field_doc])* $field: $kind,)* },)*
        }

        impl<'a> Record<'a> {
            /// Its number in the file.
            pub const fn number(&self) -> u8 {
                match self { $(Record::$name { .. } => $number,)* }
            }

            /// Its name.
            pub const fn name(&self) -> &'static str {
                match self { $(Record::$name { .. } => stringify!($name),)* }
            }

            /// Appends what is in it.
            #[inline]
            pub fn emit(&self, out: &mut impl Out) {
                match self { $(Record::$name { $($field,)* } => { $($field.emit(out);)* })* }
            }

            /// Takes what is in the record of this number from the front. What a newer version has added
            /// behind it is left. `None`: it is none.
            pub(super) fn parse(number: u8, bytes: &mut &'a [u8]) -> Option<Record<'a>> {
                match number {
                    $($number => Some(Record::$name { $($field: Field::parse(bytes)?,)* }),)*
                    _ => None,
                }
            }

            /// Whether this version knows a record of this number.
            pub(super) fn is_known(number: u8) -> bool {
                [$($number),*].contains(&number)
            }
        }
    };
}

records! {
    /// A queue pair was made.
    1 QpCreated {
        /// Its ordinal.
        qp: u32,
        /// Its number.
        qpn: u32,
        /// Completion queue of send requests: its index in the table.
        send_cq: u32,
        /// Completion queue of receive requests.
        recv_cq: u32,
        /// Its transport service.
        service: &'a str,
    }
    /// A queue pair was destroyed.
    2 QpDestroyed {
        /// Which one.
        qp: u32,
    }
    /// The state of a queue pair changed.
    3 StateChanged {
        /// Which one.
        qp: u32,
        /// Before: the number of the state in verbs.
        from: u8,
        /// After.
        to: u8,
        /// Who changed it: 0 the program, 1 the requester, 2 the responder, 3 the device.
        by: u8,
        /// How often it was reset before.
        connection: u32,
        /// The peer's address, if it is connected.
        peer: Option<IpAddr>,
        /// The peer's queue pair number; 0 if it is not connected.
        peer_qpn: u32,
    }
    /// A send request was posted.
    4 SendPosted {
        /// On this queue pair.
        qp: u32,
        /// The ordinal of the request since the queue pair was reset.
        message: u64,
        /// Of the request.
        wr_id: u64,
        /// Its operation: the number in verbs.
        opcode: u8,
        /// Its length in bytes.
        length: u32,
        /// PSN of its first packet.
        psn: u32,
        /// PSNs that it takes.
        packets: u32,
        /// It makes a completion when it succeeds.
        signaled: bool,
    }
    /// A receive request was posted.
    5 RecvPosted {
        /// On this queue pair.
        qp: u32,
        /// Of the request.
        wr_id: u64,
        /// Length of its buffers in bytes.
        bytes: u64,
    }
    /// A packet was given to the port.
    6 PacketSent {
        /// By this queue pair.
        qp: u32,
        /// 0: requester; 1: responder; 2: congestion notification.
        side: u8,
        /// The message that it belongs to, or answers.
        message: u64,
        /// Its PSN.
        psn: u32,
        /// Which transmission of this PSN it is, from 1.
        transmission: u32,
        /// Its opcode on the wire.
        opcode: u8,
        /// Bytes from the BTH to the ICRC.
        length: u32,
        /// The queue pair number that it is for.
        destination: u32,
    }
    /// A packet arrived, before anything was checked.
    7 PacketReceived {
        /// For this queue pair.
        qp: u32,
        /// Its PSN.
        psn: u32,
        /// Its opcode on the wire.
        opcode: u8,
        /// Bytes from the BTH to the ICRC.
        length: u32,
        /// Of a datagram: the queue pair number that sent it.
        source: Option<u32>,
    }
    /// The packets of a queue pair go to this address from now on.
    8 SendsTo {
        /// Which queue pair.
        qp: u32,
        /// From this address of the process.
        from: IpAddr,
        /// The address.
        to: IpAddr,
    }
    /// The packets for a queue pair come from this address from now on.
    9 ReceivesFrom {
        /// Which queue pair.
        qp: u32,
        /// The address.
        from: IpAddr,
        /// To this address of the process.
        to: IpAddr,
    }
    /// The peer has acknowledged more than before.
    10 Acknowledged {
        /// To this queue pair.
        qp: u32,
        /// The first PSN without an acknowledgement.
        before: u32,
    }
    /// A packet for a queue pair was dropped.
    11 Dropped {
        /// Which queue pair.
        qp: u32,
        /// Name of the counter that has it.
        counter: &'a str,
        /// Its opcode on the wire.
        opcode: u8,
        /// Its PSN.
        psn: u32,
    }
    /// A request came after a gap in the PSNs.
    12 OutOfSequence {
        /// To this queue pair.
        qp: u32,
        /// Its PSN.
        psn: u32,
        /// The PSN that was expected.
        expected: u32,
    }
    /// A request came that was executed before.
    13 DuplicateRequest {
        /// To this queue pair.
        qp: u32,
        /// Its opcode on the wire.
        opcode: u8,
        /// Its PSN.
        psn: u32,
    }
    /// The responder queued a NAK.
    14 NakSent {
        /// Of this queue pair.
        qp: u32,
        /// Its kind: the byte in the AETH.
        syndrome: u8,
        /// Its PSN.
        psn: u32,
    }
    /// A NAK came.
    15 NakReceived {
        /// To this queue pair.
        qp: u32,
        /// Its kind: the byte in the AETH.
        syndrome: u8,
        /// Its PSN.
        psn: u32,
    }
    /// An answer shows that an earlier one was lost.
    16 ImpliedNak {
        /// To this queue pair.
        qp: u32,
        /// The PSN whose answer is missing.
        psn: u32,
    }
    /// A packet came that a switch marked as congested.
    17 CongestionMarked {
        /// To this queue pair.
        qp: u32,
        /// Its PSN.
        psn: u32,
    }
    /// A congestion notification was sent.
    18 CnpSent {
        /// By this queue pair.
        qp: u32,
    }
    /// A congestion notification came.
    19 CnpReceived {
        /// To this queue pair.
        qp: u32,
    }
    /// Everything from a PSN on is sent again.
    20 SentAgain {
        /// By this queue pair.
        qp: u32,
        /// The first one.
        psn: u32,
        /// PSNs that were under way.
        packets: u32,
        /// Why: 0 timeout, 1 silence, 2 sequence NAK, 3 missing answer, 4 receiver not ready.
        why: u8,
    }
    /// The acknowledgement timer expired.
    21 TimedOut {
        /// Of this queue pair.
        qp: u32,
        /// The oldest PSN without an answer.
        psn: u32,
        /// Retries that are left.
        retries_left: u8,
        /// The attribute `timeout`.
        timeout: u8,
    }
    /// The peer was silent for longer than its answers take.
    22 FellSilent {
        /// To this queue pair.
        qp: u32,
        /// The oldest PSN without an answer.
        psn: u32,
    }
    /// The timer expired, but the peer's process had no processor.
    23 PeerStarved {
        /// Of this queue pair.
        qp: u32,
        /// The oldest PSN without an answer.
        psn: u32,
    }
    /// The peer has no receive request posted.
    24 ReceiverNotReady {
        /// For this queue pair.
        qp: u32,
        /// PSN that it refused.
        psn: u32,
        /// Retries that are left; 7 means for ever.
        retries_left: u8,
        /// For how long nothing is sent, in ns.
        wait_ns: u64,
    }
    /// A request completed.
    25 Completed {
        /// Of this queue pair.
        qp: u32,
        /// The completion queue: its index in the table.
        cq: u32,
        /// Of the request.
        wr_id: u64,
        /// Its status: the number in verbs.
        status: u8,
        /// What completed: the number in verbs.
        opcode: u8,
        /// Bytes of the message.
        bytes: u32,
        /// Send requests that it ends: itself and the unsignaled ones before it; 0 of a receive request.
        released: u32,
    }
    /// The program polled a completion.
    26 Polled {
        /// The completion queue.
        cq: u32,
        /// Number of the queue pair.
        qpn: u32,
        /// Of the request.
        wr_id: u64,
        /// Its status.
        status: u8,
        /// What completed.
        opcode: u8,
    }
    /// An armed completion queue fired.
    27 CompletionEventRaised {
        /// The completion queue.
        cq: u32,
    }
    /// The program got a completion event.
    28 CompletionEventDelivered {
        /// The completion queue.
        cq: u32,
    }
    /// An asynchronous event was raised.
    29 AsyncEventRaised {
        /// Which one.
        event: &'a str,
        /// Number of the queue pair that it is about, if it is about one.
        qpn: Option<u32>,
    }
    /// The program got an asynchronous event.
    30 AsyncEventDelivered {
        /// Which one.
        event: &'a str,
        /// Number of the queue pair that it is about, if it is about one.
        qpn: Option<u32>,
    }
    /// A packet was dropped before a queue pair saw it.
    31 PacketDropped {
        /// Name of the counter that has it.
        counter: &'a str,
        /// The address that sent it.
        source: IpAddr,
        /// Number of the queue pair that it was for, if it could be parsed.
        qpn: Option<u32>,
        /// Its opcode on the wire.
        opcode: u8,
        /// Its PSN.
        psn: u32,
    }
    /// A rule of a fault plan applied to a packet on its way out.
    32 FaultApplied {
        /// Name of the rule.
        rule: &'a str,
        /// What it did, as a verb whose object is the packet.
        deed: &'a str,
        /// Ordinal of the queue pair; `None` for connection management.
        qp: Option<u32>,
        /// What the packet does: its class in fault plans.
        class: &'a str,
        /// Who sends it: 0 the requester, 1 the responder, 2: it is a congestion notification.
        side: u8,
        /// The message that it belongs to, or answers.
        message: u64,
        /// Packets of this direction before it.
        packet: u64,
        /// Which transmission it is.
        transmission: u32,
        /// It never met the network.
        lost: bool,
    }
    /// A rule applied to something else than a packet, or changed, in words.
    33 FaultNoted {
        /// What it did.
        text: &'a str,
    }
    /// A message of connection management was given to the port.
    34 CmSent {
        /// Its name.
        message: &'a str,
        /// The receiver's id of the connection; 0: it names none.
        recipient: u32,
        /// The service that it asks for.
        service: Option<u64>,
    }
    /// A message of connection management came.
    35 CmReceived {
        /// Its name.
        message: &'a str,
        /// This side's id of the connection; 0: it names none.
        recipient: u32,
        /// The service that it asks for.
        service: Option<u64>,
    }
    /// Something happened to a connection, of which the program is told.
    36 CmEvent {
        /// What happened.
        event: &'a str,
        /// This side's id of the connection.
        id: u32,
        /// The state that the connection is in now; empty if it is over.
        state: &'a str,
    }
    /// A call of the program was refused.
    37 CallRefused {
        /// Its name.
        call: &'a str,
        /// Its ordinal among the calls of this name, if they are counted.
        ordinal: Option<u64>,
        /// The errno that it ended with.
        errno: i32,
        /// Why, in words.
        why: &'a str,
    }
    /// Something went wrong with a queue pair, in words.
    38 Logged {
        /// Which queue pair.
        qp: u32,
        /// What went wrong.
        text: &'a str,
    }
    /// What the requester knows of the path; at most once a millisecond.
    40 Measured {
        /// Of this queue pair.
        qp: u32,
        /// Round trip time, smoothed, in ns; 0 before the first sample.
        rtt_ns: u64,
        /// Request packets that may be unacknowledged.
        window_packets: u32,
        /// Request packets that were unacknowledged before the last acknowledgement.
        in_flight_packets: u32,
    }
    /// The rate of its packets changed, which DCQCN decides.
    41 RateChanged {
        /// Of this queue pair.
        qp: u32,
        /// The current rate in bit/s.
        rate: u64,
        /// The rate that it grows to, in bit/s.
        target: u64,
        /// The estimate of congestion, in 2^-20.
        alpha: u32,
    }
    /// What a rule of a fault plan did, for those who look for causes: behind the record that says it in
    /// words.
    42 FaultDetail {
        /// Name of the rule.
        rule: &'a str,
        /// What it did: the number of a [`FaultWhat`](super::FaultWhat).
        what: u8,
        /// Ordinal of the queue pair, if it is about one.
        qp: Option<u32>,
        /// Of packets, as in `FaultApplied`; of completions, 0: of a send request, 1: of a receive request.
        side: u8,
        /// The message, or the request on its work queue.
        message: u64,
        /// The call, the status, the answer or the incident; else empty.
        subject: &'a str,
        /// The ordinal of the call, or of the event of the completion channel.
        ordinal: u64,
        /// How much later the packet, the completion or the end of the call comes, in ns.
        delay_ns: u64,
        /// How long what happened lasts, in ns; 0: for ever, or it does not last.
        lasts_ns: u64,
    }
    /// What a queue pair may have under way.
    43 SendLimits {
        /// Which one.
        qp: u32,
        /// Requests that its send queue has room for.
        requests: u32,
        /// READs and atomics: the attribute `max_rd_atomic`.
        reads: u8,
    }
    /// The process, or the thread that writes the trace, had no processor: it went on so much later.
    44 Stalled {
        /// By how much, in ns.
        late_ns: u64,
    }
    /// The process lived, and nothing else had happened for a while; or it ended here.
    45 Alive {}
    /// What the network of the device is like.
    46 Network {
        /// The link, in the words of `PUMICE_LINK`; empty: none.
        link: &'a str,
        /// The switches that it is behind, in a word; empty: none.
        switches: &'a str,
    }
    /// The recording begins here, while the program runs: what was before is not in the trace.
    47 Began {}
    /// A queue pair was there when the recording began.
    48 QpFound {
        /// Its ordinal.
        qp: u32,
        /// Its number.
        qpn: u32,
        /// Completion queue of send requests: its index in the table.
        send_cq: u32,
        /// Completion queue of receive requests.
        recv_cq: u32,
        /// Its transport service.
        service: &'a str,
        /// Its state: the number in verbs.
        state: u8,
        /// How often it was reset before.
        connection: u32,
        /// The peer's address, if it is connected.
        peer: Option<IpAddr>,
        /// The peer's queue pair number; 0 if it is not connected.
        peer_qpn: u32,
        /// Send requests that were posted before, and whose end no completion had told.
        sends: u64,
        /// Receive requests on its own queue.
        receives: u32,
        /// Requests that its send queue has room for.
        requests: u32,
        /// READs and atomics: the attribute `max_rd_atomic`.
        reads: u8,
    }
    /// So many completions waited in a completion queue when the recording began.
    49 CqFound {
        /// The completion queue.
        cq: u32,
        /// Completions that the program had not polled.
        waiting: u32,
    }
    /// Records are missing here, because they came faster than they were written.
    39 Lost {
        /// How many.
        records: u64,
    }
}
