//! The subscriber that records: the events that it subscribes to, and the records that it makes of them.

use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use super::{TraceQueue, fault_detail};
use crate::format::{Record, TraceHeader};
use pumice_model::counters::COUNTERS;
use pumice_model::event::{AsyncElement, Event, Subscriber, Topics, fault_in_words};
use pumice_model::fates::fired::Fired;
use pumice_model::recording::{Existing, QpSnapshot};
use pumice_platform::clock::Clock;
use pumice_platform::outside;
use pumice_transport::event::QpEvent;
use pumice_transport::host::Counter;
use pumice_transport::mad::{CmMessage, CommId};
use pumice_transport::mrc::wire::MrcOpcode;
use pumice_transport::path::Flow;
use pumice_transport::types::{Peer, QpState};
use pumice_transport::wire::{Psn, Qpn};

use super::waiting::PacketPath;

/// Default limit of a trace, in bytes.
pub const DEFAULT_LIMIT_BYTES: u64 = 256 << 20;

/// The file of a trace and the contents of its header.
pub struct TraceFile {
    /// File that the trace is written to: at its end, if the process has opened its device before.
    pub file: File,
    /// Limit of its length, in bytes.
    pub limit_bytes: u64,
    /// Name of the program.
    pub program: String,
    /// Function that takes a sentence if the trace is not complete.
    pub on_problem: Box<dyn Fn(&str) + Send>,
}

/// A function that opens the file of a trace, once the port exists.
pub type TraceSource = Box<dyn FnOnce() -> io::Result<TraceFile> + Send>;

/// The times of the host's clocks when the device's clock is 0.
#[derive(Debug, Clone, Copy, Default)]
pub struct ClockBase {
    pub(crate) monotonic_ns: u64,
    pub(crate) wall_ns: u64,
}

impl ClockBase {
    /// Returns the base of a clock; 0 for virtual time.
    pub fn of(clock: &Clock) -> ClockBase {
        if clock.is_virtual() {
            return ClockBase::default();
        }
        let wall = u64::try_from(outside::since_1970().as_nanos()).unwrap_or(0);
        let (now, monotonic) = (clock.now_ns(), outside::time::monotonic_ns());
        ClockBase { monotonic_ns: monotonic.wrapping_sub(now), wall_ns: wall.wrapping_sub(now) }
    }

    /// Converts a time of the host's clock to the device's clock; 0 in virtual time.
    const fn since(&self, monotonic_ns: u64) -> u64 {
        if self.monotonic_ns == 0 { 0 } else { monotonic_ns.wrapping_sub(self.monotonic_ns) }
    }
}

/// The network of a device, in words.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TraceNetwork {
    /// Link, as `PUMICE_LINK` describes it; empty for none.
    pub link: String,
    /// Kind of the switches that the device is behind; empty for none.
    pub switches: String,
}

/// A subscriber that records everything that a timeline is made of.
pub struct TraceSubscriber {
    queue: TraceQueue,
}

impl TraceSubscriber {
    /// Begins the trace of a device of this name with these addresses.
    ///
    /// # Errors
    /// Fails if the file cannot be written, or if no thread can be started.
    pub fn begin(
        trace: TraceFile,
        base: ClockBase,
        names: (&str, &str),
        addresses: Vec<IpAddr>,
        network: &TraceNetwork,
    ) -> io::Result<TraceSubscriber> {
        let (device, tag) = names;
        let boot = if base.monotonic_ns == 0 { String::new() } else { boot() };
        let header = TraceHeader {
            process: outside::process::number(),
            monotonic_base_ns: base.monotonic_ns,
            wall_base_ns: base.wall_ns,
            limit_bytes: trace.limit_bytes,
            boot,
            program: trace.program,
            tag: tag.to_owned(),
            device: device.to_owned(),
            addresses,
            ..TraceHeader::default()
        };
        let queue = TraceQueue::start(trace.file, header, trace.on_problem)?;
        let (link, switches) = (network.link.as_str(), network.switches.as_str());
        if !link.is_empty() || !switches.is_empty() {
            queue.put(base.since(outside::time::monotonic_ns()), &Record::Network { link, switches });
        }
        Ok(TraceSubscriber { queue })
    }

    /// Records the objects of a device that was open before. `join` subscribes to its events from then on.
    pub fn find(&self, now: &dyn Existing, at_ns: u64, join: impl FnOnce()) {
        self.queue.put_value(at_ns, || None, || Record::Began {});
        now.queue_pairs(&mut |found| self.queue.put_value(at_ns, || None, || of_found(found)));
        join();
        // From now on the recorder is notified of polls, in the order in which they happen.
        now.completion_queues(&mut |cq, waiting| {
            self.queue.put_value(at_ns, || None, || Record::CqFound { cq, waiting });
        });
    }

    /// Ends the recording after this time; `leave` unsubscribes the recorder.
    pub fn limit_time(&self, time: Duration, leave: Box<dyn FnOnce() + Send>) {
        self.queue.limit_time(time, leave);
    }

    /// Ends the recording now, without waiting for the end.
    pub fn end_recording(&self) {
        self.queue.end_recording();
    }

    /// Records the effect of a rule of a fault plan, for readers who look for causes.
    fn record_fault(&self, at_ns: u64, event: &Event<'_>) {
        fault_detail::of_event(event, &mut |record| self.queue.put(at_ns, record));
    }
}

/// Returns the identifier of this boot of the host.
fn boot() -> String {
    let text = outside::files::fact_text("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    text.trim().to_owned()
}

impl Subscriber for TraceSubscriber {
    fn topics(&self) -> Topics {
        Topics::all() - Topics::BATCHES
    }

    fn on_event(&self, at_ns: u64, event: &Event<'_>) {
        match event {
            Event::Qp { qp, event } => self.record_message_event(at_ns, qp.ordinal, event),
            Event::Polled { cq, completion } => {
                let record = || Record::Polled {
                    cq: cq.index,
                    qpn: completion.qp_num,
                    wr_id: completion.wr_id,
                    status: completion.status as u8,
                    opcode: completion.opcode as u8,
                };
                self.queue.put_value(at_ns, || None, record);
            }
            _ => self.record_device_event(at_ns, event),
        }
    }

    fn settle(&self, patience: Duration) {
        self.queue.settle(patience);
    }

    fn finish(&self) {
        self.queue.finish();
    }
}

/// Returns the record of a queue pair that existed before.
const fn of_found(found: &QpSnapshot) -> Record<'static> {
    let QpSnapshot { ordinal: qp, qpn, send_cq, recv_cq, service, state, connection, .. } = *found;
    let (peer, peer_qpn) = match found.peer {
        Some((address, qpn)) => (Some(address), qpn),
        None => (None, 0),
    };
    let QpSnapshot { sends, receives, send_depth: requests, reads, .. } = *found;
    Record::QpFound {
        qp,
        qpn,
        send_cq,
        recv_cq,
        service,
        state,
        connection,
        peer,
        peer_qpn,
        sends,
        receives,
        requests,
        reads,
    }
}

impl TraceSubscriber {
    /// Records the events of each message. Each record is made where it waits.
    #[inline]
    fn record_message_event(&self, at_ns: u64, qp: u32, event: &QpEvent<'_>) {
        match event {
            QpEvent::PacketSent { identity, opcode, psn, length_bytes, destination, path } => {
                if MrcOpcode::from_byte(opcode.byte()).is_some() {
                    self.record_path(at_ns, qp, path.flow.source_port);
                }
                let record = || Record::PacketSent {
                    qp,
                    side: fault_detail::side(identity.side),
                    message: identity.message,
                    psn: psn.value(),
                    transmission: identity.transmission,
                    opcode: opcode.byte(),
                    length: *length_bytes,
                    destination: destination.value(),
                };
                self.queue.put_value(at_ns, || Some(path_of(qp, true, &path.flow)), record);
            }
            QpEvent::PacketReceived { opcode, psn, length_bytes, source, flow, .. } => {
                let record = || Record::PacketReceived {
                    qp,
                    psn: psn.value(),
                    opcode: opcode.byte(),
                    length: *length_bytes,
                    source: source.map(Qpn::value),
                };
                self.queue.put_value(at_ns, || Some(path_of(qp, false, flow)), record);
            }
            QpEvent::Acknowledged { before } => {
                self.queue.put_value(at_ns, || None, || Record::Acknowledged { qp, before: before.value() });
            }
            QpEvent::Completed { completion, cq, released } => {
                let record = || Record::Completed {
                    qp,
                    cq: *cq,
                    wr_id: completion.wr_id,
                    status: completion.status as u8,
                    opcode: completion.opcode as u8,
                    bytes: completion.byte_len,
                    released: *released,
                };
                self.queue.put_value(at_ns, || None, record);
            }
            _ => self.record_request_event(at_ns, qp, event),
        }
    }

    /// Records by which path the next packet of an MRC queue pair leaves.
    #[cold]
    fn record_path(&self, at_ns: u64, qp: u32, source_port: u16) {
        self.queue.put_value(at_ns, || None, || Record::PathTaken { qp, source_port });
    }

    /// Records the beginning of each message, and rare events.
    #[inline(never)]
    fn record_request_event(&self, at_ns: u64, qp: u32, event: &QpEvent<'_>) {
        match event {
            QpEvent::SendPosted {
                wr_id,
                message,
                opcode,
                length_bytes,
                psn,
                packet_count,
                signaled,
                inline,
                ..
            } => {
                let record = || Record::SendPosted {
                    qp,
                    message: *message,
                    wr_id: *wr_id,
                    opcode: *opcode as u8,
                    length: *length_bytes,
                    psn: psn.value(),
                    packets: *packet_count,
                    signaled: *signaled,
                };
                self.queue.put_value(at_ns, || None, record);
                if *inline {
                    let message = *message;
                    self.queue.put_value(at_ns, || None, || Record::PostedInline { qp, message });
                }
            }
            QpEvent::RecvPosted { request } => {
                let bytes: u64 = request.sges.iter().map(|sge| u64::from(sge.length)).sum();
                self.queue.put_value(
                    at_ns,
                    || None,
                    || Record::RecvPosted { qp, wr_id: request.wr_id, bytes },
                );
            }
            _ => self.record_error_event(at_ns, qp, event),
        }
    }

    /// Records changes and errors of a queue pair.
    #[cold]
    #[inline(never)]
    fn record_error_event(&self, at_ns: u64, qp: u32, event: &QpEvent<'_>) {
        if let QpEvent::Logged(cause) = event {
            let text = cause.to_string();
            return self.queue.put(at_ns, &Record::Logged { qp, text: &text });
        }
        if let Some(record) = of_queue_pair(qp, event) {
            self.queue.put_value(at_ns, || None, || record);
        }
        if let QpEvent::StateChanged { to: QpState::Rts, requests, reads, .. } = *event {
            self.queue.put_value(at_ns, || None, || Record::SendLimits { qp, requests, reads });
        }
    }

    /// Records events of no queue pair, or rare ones.
    #[cold]
    #[inline(never)]
    fn record_device_event(&self, at_ns: u64, event: &Event<'_>) {
        match event {
            Event::FaultApplied { fault, .. } => {
                let deed = fault.deed();
                self.queue.put(at_ns, &of_fault(fault, &deed));
                return self.record_fault(at_ns, event);
            }
            Event::CompletionEventRaised { cq } => {
                return self.queue.put_value(
                    at_ns,
                    || None,
                    || Record::CompletionEventRaised { cq: cq.index },
                );
            }
            Event::CompletionEventDelivered { cq } => {
                return self.queue.put_value(
                    at_ns,
                    || None,
                    || Record::CompletionEventDelivered { cq: cq.index },
                );
            }
            _ => {}
        }
        if let Some(text) = fault_in_words(event) {
            self.queue.put(at_ns, &Record::FaultNoted { text: &text });
            return self.record_fault(at_ns, event);
        }
        if let Some(record) = of_device(event) {
            self.queue.put(at_ns, &record);
        }
        if let Event::QpDestroyed { qp } = event {
            self.queue.forget(qp.ordinal);
        }
    }
}

/// Returns the way of a packet that this queue pair sends or receives.
#[inline(always)]
const fn path_of(qp: u32, is_out: bool, flow: &Flow) -> PacketPath {
    PacketPath { qp, is_out, from: flow.source, to: flow.destination }
}

/// Returns the record of a queue pair's event, besides those of each message.
fn of_queue_pair(qp: u32, event: &QpEvent<'_>) -> Option<Record<'static>> {
    let number = |psn: &Psn| psn.value();
    Some(match event {
        QpEvent::StateChanged { from, to, by, connection, peer, .. } => Record::StateChanged {
            qp,
            from: *from as u8,
            to: *to as u8,
            by: fault_detail::actor(*by),
            connection: *connection,
            peer: peer.map(|peer| peer.address),
            peer_qpn: peer.map_or(0, |Peer { qpn, .. }| qpn.value()),
        },
        QpEvent::Dropped { reason, opcode, psn } => {
            Record::Dropped { qp, counter: name_of(*reason), opcode: opcode.byte(), psn: number(psn) }
        }
        QpEvent::OutOfSequence { psn, expected } => {
            Record::OutOfSequence { qp, psn: number(psn), expected: number(expected) }
        }
        QpEvent::DuplicateRequest { opcode, psn } => {
            Record::DuplicateRequest { qp, opcode: opcode.byte(), psn: number(psn) }
        }
        other => return of_recovery(qp, other),
    })
}

/// Returns the record of a queue pair's reaction to refusals and loss, and of what it knows of the path.
fn of_recovery(qp: u32, event: &QpEvent<'_>) -> Option<Record<'static>> {
    Some(match *event {
        QpEvent::NakSent { syndrome, psn } => {
            Record::NakSent { qp, syndrome: syndrome.byte(), psn: psn.value() }
        }
        QpEvent::NakReceived { syndrome, psn } => {
            Record::NakReceived { qp, syndrome: syndrome.byte(), psn: psn.value() }
        }
        QpEvent::ImpliedNak { psn } => Record::ImpliedNak { qp, psn: psn.value() },
        QpEvent::CongestionMarked { psn } => Record::CongestionMarked { qp, psn: psn.value() },
        QpEvent::CnpSent => Record::CnpSent { qp },
        QpEvent::CnpReceived => Record::CnpReceived { qp },
        QpEvent::SentAgain { psn, packet_count, why } => Record::SentAgain {
            qp,
            psn: psn.value(),
            packets: packet_count,
            why: fault_detail::repetition(why),
        },
        QpEvent::TimedOut { psn, retries_left, timeout } => {
            Record::TimedOut { qp, psn: psn.value(), retries_left, timeout }
        }
        QpEvent::FellSilent { psn } => Record::FellSilent { qp, psn: psn.value() },
        QpEvent::PeerStarved { psn } => Record::PeerStarved { qp, psn: psn.value() },
        QpEvent::ReceiverNotReady { psn, retries_left, wait_ns } => {
            Record::ReceiverNotReady { qp, psn: psn.value(), retries_left, wait_ns }
        }
        QpEvent::PathsMade { plane, planes, paths } => Record::PathsMade { qp, plane, planes, paths },
        QpEvent::PathChanged { source_port, plane, state } => {
            Record::PathChanged { qp, source_port, plane, state }
        }
        QpEvent::PacketLost { psn, source_port, age_ns, proof } => {
            Record::PacketLost { qp, psn: psn.value(), source_port, age_ns, proof: proof as u8 }
        }
        QpEvent::RateChanged { rate, target, alpha } => Record::RateChanged { qp, rate, target, alpha },
        QpEvent::Measured { rtt_ns, window_packets, in_flight_packets } => {
            Record::Measured { qp, rtt_ns: rtt_ns.unwrap_or(0), window_packets, in_flight_packets }
        }
        _ => return None,
    })
}

/// Returns the record of a device's event besides completions.
fn of_device<'a>(event: &Event<'a>) -> Option<Record<'a>> {
    Some(match *event {
        Event::QpCreated { qp, service } => Record::QpCreated {
            qp: qp.ordinal,
            qpn: qp.qpn.value(),
            send_cq: qp.send_cq,
            recv_cq: qp.recv_cq,
            service,
        },
        Event::QpDestroyed { qp } => Record::QpDestroyed { qp: qp.ordinal },
        Event::RegionRegistered { length, .. } => Record::RegionRegistered { bytes: length },
        Event::AsyncEventRaised { event, element } => {
            Record::AsyncEventRaised { event: event.name(), qpn: about(element) }
        }
        Event::AsyncEventDelivered { event, element } => {
            Record::AsyncEventDelivered { event: event.name(), qpn: about(element) }
        }
        Event::PacketDropped { reason, source, packet } => Record::PacketDropped {
            counter: name_of(reason),
            source,
            qpn: packet.map(|(qpn, ..)| qpn.value()),
            opcode: packet.map_or(0, |(_, opcode, _)| opcode.byte()),
            psn: packet.map_or(0, |(.., psn)| psn.value()),
        },
        Event::CmSent { message } => {
            let (message, recipient, service) = of_message(message);
            Record::CmSent { message, recipient, service }
        }
        Event::CmReceived { message } => {
            let (message, recipient, service) = of_message(message);
            Record::CmReceived { message, recipient, service }
        }
        Event::CmEvent { event, state } => Record::CmEvent {
            event: fault_detail::cm_event(event),
            id: event.id().0,
            state: fault_detail::cm_state(state),
        },
        Event::CallRefused { call, ordinal, errno, why } => Record::CallRefused { call, ordinal, errno, why },
        _ => return None,
    })
}

fn of_message(message: &CmMessage) -> (&'static str, u32, Option<u64>) {
    let CommId(recipient) = message.recipient().unwrap_or(CommId::NONE);
    (fault_detail::cm_message(message), recipient, message.service().map(|service| service.0))
}

/// Returns the record of a fault plan's rule that applied to a packet.
fn of_fault<'a>(fault: &Fired<'a>, deed: &'a str) -> Record<'a> {
    let Fired { rule, key, fate, .. } = fault;
    let is_cm = key.service == pumice_model::fates::PacketService::Cm;
    Record::FaultApplied {
        rule,
        deed,
        qp: (!is_cm).then_some(key.qp),
        class: key.class.name(),
        side: fault_detail::side(key.side),
        message: key.message,
        packet: key.packet,
        transmission: key.transmission,
        lost: fate.lost,
    }
}

/// Returns the queue pair that an asynchronous event is about.
const fn about(element: AsyncElement) -> Option<u32> {
    match element {
        AsyncElement::Qp { qpn, .. } => Some(qpn),
        _ => None,
    }
}

fn name_of(counter: Counter) -> &'static str {
    COUNTERS.get(counter as usize).map_or("", |info| info.name)
}
