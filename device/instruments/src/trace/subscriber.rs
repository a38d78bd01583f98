//! The subscriber that records: what it listens to, and what it makes of each event.

use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use pumice_events::counters::COUNTERS;
use pumice_events::recording::{Existing, QpNow};
use pumice_events::{AsyncElement, Event, Subscriber, Topics};
use pumice_faults::Fired;
use pumice_ground::clock::Clock;
use pumice_ground::outside;
use pumice_traces::format::{Record, TraceHeader};
use pumice_transport::event::QpEvent;
use pumice_transport::host::Counter;
use pumice_transport::mad::{CmMessage, CommId};
use pumice_transport::path::Flow;
use pumice_transport::types::{Peer, QpState};
use pumice_transport::wire::{Psn, Qpn};

use super::fault_detail;
use super::naming;
use super::queue::TraceQueue;
use super::ways::Way;
use crate::listeners::fault_in_words;

/// Bytes that a trace has at most, if nothing else is said.
pub const DEFAULT_LIMIT_BYTES: u64 = 256 << 20;

/// The file of a trace and what the header says.
pub struct TraceFile {
    /// Where it is written to: at the end, if the process has opened its device before.
    pub file: File,
    /// Bytes that it has at most.
    pub limit_bytes: u64,
    /// Name of the program.
    pub program: String,
    /// Takes a sentence if the trace is not complete.
    pub say: Box<dyn Fn(&str) + Send>,
}

/// Opens the file of a trace, once the port is there.
pub type TraceSource = Box<dyn FnOnce() -> io::Result<TraceFile> + Send>;

/// What the clocks of the host say when the device's clock says 0.
#[derive(Debug, Clone, Copy, Default)]
pub struct ClockBase {
    pub(crate) monotonic_ns: u64,
    pub(crate) wall_ns: u64,
}

impl ClockBase {
    /// Of a clock; 0 of virtual time.
    pub fn of(clock: &Clock) -> ClockBase {
        if clock.is_virtual() {
            return ClockBase::default();
        }
        let wall = u64::try_from(outside::since_1970().as_nanos()).unwrap_or(0);
        let (now, monotonic) = (clock.now_ns(), outside::time::monotonic_ns());
        ClockBase { monotonic_ns: monotonic.wrapping_sub(now), wall_ns: wall.wrapping_sub(now) }
    }

    /// What the device's clock says when that of the host says this; 0 in virtual time.
    const fn since(&self, monotonic_ns: u64) -> u64 {
        if self.monotonic_ns == 0 { 0 } else { monotonic_ns.wrapping_sub(self.monotonic_ns) }
    }
}

/// What the network of a device is like, in words.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TraceNetwork {
    /// The link, as `PUMICE_LINK` says it; empty: none.
    pub link: String,
    /// The kind of the switches that the device is behind; empty: none.
    pub switches: String,
}

/// Records everything that a timeline is made of.
pub struct TraceSubscriber {
    queue: TraceQueue,
}

impl TraceSubscriber {
    /// Begins the trace of a device of this name with these addresses.
    ///
    /// # Errors
    /// The file cannot be written, or there is no thread to be had.
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
        let queue = TraceQueue::start(trace.file, header, trace.say)?;
        let (link, switches) = (network.link.as_str(), network.switches.as_str());
        if !link.is_empty() || !switches.is_empty() {
            queue.put(base.since(outside::time::monotonic_ns()), &Record::Network { link, switches });
        }
        Ok(TraceSubscriber { queue })
    }

    /// The device was open before, and has these objects. `join` lets it hear from then on.
    pub fn find(&self, now: &dyn Existing, at_ns: u64, join: impl FnOnce()) {
        self.queue.put_value(at_ns, || None, || Record::Began {});
        now.queue_pairs(&mut |found| self.queue.put_value(at_ns, || None, || of_found(found)));
        join();
        // From now on polls are heard, in the order in which they happen.
        now.completion_queues(&mut |cq, waiting| {
            self.queue.put_value(at_ns, || None, || Record::CqFound { cq, waiting });
        });
    }

    /// It ends after this time; `leave` lets it hear no more.
    pub fn stays(&self, time: Duration, leave: Box<dyn FnOnce() + Send>) {
        self.queue.stays(time, leave);
    }

    /// It ends now, which is not waited for.
    pub fn goes(&self) {
        self.queue.goes();
    }

    /// What a rule of a fault plan did, for those who look for causes.
    fn tell_fault(&self, at_ns: u64, event: &Event<'_>) {
        fault_detail::of_event(event, &mut |record| self.queue.put(at_ns, record));
    }
}

/// Names the boot of this host.
fn boot() -> String {
    let text = outside::files::fact_text("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    text.trim().to_owned()
}

impl Subscriber for TraceSubscriber {
    fn topics(&self) -> Topics {
        Topics::all() - Topics::BATCHES
    }

    fn hear(&self, at_ns: u64, event: &Event<'_>) {
        match event {
            Event::Qp { qp, event } => self.hear_of_message(at_ns, qp.ordinal, event),
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
            _ => self.hear_of_device(at_ns, event),
        }
    }

    fn settle(&self, patience: Duration) {
        self.queue.settle(patience);
    }

    fn finish(&self) {
        self.queue.finish();
    }
}

/// A queue pair that was there before.
const fn of_found(found: &QpNow) -> Record<'static> {
    let QpNow { ordinal: qp, qpn, send_cq, recv_cq, service, state, connection, .. } = *found;
    let (peer, peer_qpn) = match found.peer {
        Some((address, qpn)) => (Some(address), qpn),
        None => (None, 0),
    };
    let QpNow { sends, receives, send_depth: requests, reads, .. } = *found;
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
    /// What happens with each message: each record is made where it waits.
    #[inline]
    fn hear_of_message(&self, at_ns: u64, qp: u32, event: &QpEvent<'_>) {
        match event {
            QpEvent::PacketSent { identity, opcode, psn, length_bytes, destination, path } => {
                let record = || Record::PacketSent {
                    qp,
                    side: naming::side(identity.side),
                    message: identity.message,
                    psn: psn.value(),
                    transmission: identity.transmission,
                    opcode: opcode.byte(),
                    length: *length_bytes,
                    destination: destination.value(),
                };
                self.queue.put_value(at_ns, || Some(way_of(qp, true, &path.flow)), record);
            }
            QpEvent::PacketReceived { opcode, psn, length_bytes, source, flow, .. } => {
                let record = || Record::PacketReceived {
                    qp,
                    psn: psn.value(),
                    opcode: opcode.byte(),
                    length: *length_bytes,
                    source: source.map(Qpn::value),
                };
                self.queue.put_value(at_ns, || Some(way_of(qp, false, flow)), record);
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
            _ => self.hear_of_request(at_ns, qp, event),
        }
    }

    /// The beginning of each message, and what is rare.
    #[inline(never)]
    fn hear_of_request(&self, at_ns: u64, qp: u32, event: &QpEvent<'_>) {
        match event {
            QpEvent::SendPosted {
                wr_id, message, opcode, length_bytes, psn, packet_count, signaled, ..
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
            }
            QpEvent::RecvPosted { request } => {
                let bytes: u64 = request.sges.iter().map(|sge| u64::from(sge.length)).sum();
                self.queue.put_value(
                    at_ns,
                    || None,
                    || Record::RecvPosted { qp, wr_id: request.wr_id, bytes },
                );
            }
            _ => self.hear_of_trouble(at_ns, qp, event),
        }
    }

    /// Changes of a queue pair, and what goes wrong with it.
    #[cold]
    #[inline(never)]
    fn hear_of_trouble(&self, at_ns: u64, qp: u32, event: &QpEvent<'_>) {
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

    /// What happens to no queue pair, or rarely.
    #[cold]
    #[inline(never)]
    fn hear_of_device(&self, at_ns: u64, event: &Event<'_>) {
        match event {
            Event::FaultApplied { fault, .. } => {
                let deed = fault.deed();
                self.queue.put(at_ns, &of_fault(fault, &deed));
                return self.tell_fault(at_ns, event);
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
            return self.tell_fault(at_ns, event);
        }
        if let Some(record) = of_device(event) {
            self.queue.put(at_ns, &record);
        }
        if let Event::QpDestroyed { qp } = event {
            self.queue.forget(qp.ordinal);
        }
    }
}

/// The way of a packet of this queue pair that goes or comes.
#[inline(always)]
const fn way_of(qp: u32, is_out: bool, flow: &Flow) -> Way {
    Way { qp, is_out, from: flow.source, to: flow.destination }
}

/// What a queue pair did, besides what it does with each message.
fn of_queue_pair(qp: u32, event: &QpEvent<'_>) -> Option<Record<'static>> {
    let number = |psn: &Psn| psn.value();
    Some(match event {
        QpEvent::StateChanged { from, to, by, connection, peer, .. } => Record::StateChanged {
            qp,
            from: *from as u8,
            to: *to as u8,
            by: naming::actor(*by),
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

/// What a queue pair does about refusals and loss, and what it knows of the path.
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
        QpEvent::SentAgain { psn, packet_count, why } => {
            Record::SentAgain { qp, psn: psn.value(), packets: packet_count, why: naming::repetition(why) }
        }
        QpEvent::TimedOut { psn, retries_left, timeout } => {
            Record::TimedOut { qp, psn: psn.value(), retries_left, timeout }
        }
        QpEvent::FellSilent { psn } => Record::FellSilent { qp, psn: psn.value() },
        QpEvent::PeerStarved { psn } => Record::PeerStarved { qp, psn: psn.value() },
        QpEvent::ReceiverNotReady { psn, retries_left, wait_ns } => {
            Record::ReceiverNotReady { qp, psn: psn.value(), retries_left, wait_ns }
        }
        QpEvent::RateChanged { rate, target, alpha } => Record::RateChanged { qp, rate, target, alpha },
        QpEvent::Measured { rtt_ns, window_packets, in_flight_packets } => {
            Record::Measured { qp, rtt_ns: rtt_ns.unwrap_or(0), window_packets, in_flight_packets }
        }
        _ => return None,
    })
}

/// What the device did besides completions.
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
        Event::AsyncEventRaised { event, element } => {
            Record::AsyncEventRaised { event: naming::async_event(event), qpn: about(element) }
        }
        Event::AsyncEventDelivered { event, element } => {
            Record::AsyncEventDelivered { event: naming::async_event(event), qpn: about(element) }
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
            event: naming::cm_event(event),
            id: event.id().0,
            state: naming::cm_state(state),
        },
        Event::CallRefused { call, ordinal, errno, why } => Record::CallRefused { call, ordinal, errno, why },
        _ => return None,
    })
}

fn of_message(message: &CmMessage) -> (&'static str, u32, Option<u64>) {
    let CommId(recipient) = message.recipient().unwrap_or(CommId::NONE);
    (naming::cm_message(message), recipient, message.service().map(|service| service.0))
}

/// A rule of a fault plan applied to a packet.
fn of_fault<'a>(fault: &Fired<'a>, deed: &'a str) -> Record<'a> {
    let Fired { rule, key, fate, .. } = fault;
    let is_cm = key.service == pumice_faults::PacketService::Cm;
    Record::FaultApplied {
        rule,
        deed,
        qp: (!is_cm).then_some(key.qp),
        class: key.class.name(),
        side: naming::side(key.side),
        message: key.message,
        packet: key.packet,
        transmission: key.transmission,
        lost: fate.lost,
    }
}

/// The queue pair that an asynchronous event is about.
const fn about(element: AsyncElement) -> Option<u32> {
    match element {
        AsyncElement::Qp { qpn, .. } => Some(qpn),
        _ => None,
    }
}

fn name_of(counter: Counter) -> &'static str {
    COUNTERS.get(counter as usize).map_or("", |info| info.name)
}
