//! Captures for Wireshark, and the port that notifies subscribers of the packets on the network.

use std::borrow::Cow;
use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::{DataLink, Endianness, PcapError};
use pumice_model::event::{Event, Subscriber, Subscribers, Topics};
use pumice_model::port::batch::{GsoBatch, Peer, PortLimits, ReceivedBatch, TransmitError};
use pumice_model::port::{Port, PortLayer, batch};
use pumice_platform::outside::output_file::open_private;
use pumice_transport::path::{Flow, Path};
use pumice_transport::wire::{IcrcVerdict, encapsulate, icrc};

/// Longest time between two flushes, in nanoseconds, so that the file can be read while it grows.
const FLUSH_AFTER_NS: u64 = 10_000_000;
/// Prefix of the comment of a packet that a fault plan has harmed.
const HARMED: &str = "pumice: harmed: ";
/// Prefix of the comment of a packet that a fault plan has lost: it was never on the network.
const LOST: &str = "pumice: lost: ";
/// Prefix of the comment of a packet before which a fault plan has affected a call.
const CALL: &str = "pumice: before: ";
/// Largest number of calls that wait for the next packet.
const MAX_CALLS: usize = 64;
/// Exponent of the timestamps' unit: 10^-9 s.
const NANOSECONDS: u8 = 9;

/// The direction of a packet, as the flags of its block encode it.
#[derive(Debug, Clone, Copy)]
enum PacketDirection {
    Inbound = 1,
    Outbound = 2,
}

/// A subscriber that writes the batches that pass a [`TapPort`] to a pcapng file: one
/// section, one interface, raw IP packets with the IP and UDP headers that they had. The comment of a packet
/// says what a fault plan did to it; a packet that the plan lost is in the file, too, and its comment says
/// so. What the plan did to a call is a comment of the next packet. The UDP checksum is left 0, and the IP ID
/// of a received packet is the one its ICRC was made for, if any.
///
/// Errors while writing never disturb the traffic: they are counted, and packets are missing in the file. The
/// writer reports them ([`OutputFile`](pumice_platform::outside::output_file::OutputFile)).
pub struct CaptureSubscriber<W: Write + Send = BufWriter<File>> {
    state: Mutex<CaptureState<W>>,
    time_base_ns: u64,
}

struct CaptureState<W> {
    /// Destination of the blocks; `None` once the device is closed.
    out: Option<W>,
    /// Buffer in which blocks are built; each is written to `out` in one piece.
    blocks: PcapNgWriter<Vec<u8>>,
    /// Effects of a fault plan on calls since the last packet, as sentences.
    calls: Vec<String>,
    write_errors: u64,
    unflushed: bool,
    flushed_at_ns: u64,
}

impl<W: Write + Send> fmt::Debug for CaptureSubscriber<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CaptureSubscriber").field("time_base_ns", &self.time_base_ns).finish_non_exhaustive()
    }
}

impl CaptureSubscriber {
    /// Captures to a new file that only this user may read, and replaces an old one. `time_base_ns` is added
    /// to the device's clock to get nanoseconds since 1970 (0 for virtual time).
    ///
    /// # Errors
    /// Fails if the file cannot be created or written.
    pub fn create(file: &std::path::Path, time_base_ns: u64) -> io::Result<CaptureSubscriber> {
        let opened = open_private(file)?;
        opened.set_len(0)?;
        CaptureSubscriber::new(BufWriter::with_capacity(1 << 18, opened), time_base_ns)
    }
}

impl<W: Write + Send> CaptureSubscriber<W> {
    /// Captures to any writer.
    ///
    /// # Errors
    /// Fails if the head of the capture cannot be written.
    pub fn new(mut out: W, time_base_ns: u64) -> io::Result<CaptureSubscriber<W>> {
        let interface = InterfaceDescriptionBlock {
            linktype: DataLink::RAW,
            snaplen: 0,
            options: vec![
                InterfaceDescriptionOption::IfName(Cow::Borrowed("pumice")),
                InterfaceDescriptionOption::IfTsResol(NANOSECONDS),
            ],
        };
        let mut blocks = PcapNgWriter::with_endianness(Vec::new(), Endianness::Little).map_err(to_io)?;
        blocks.write_pcapng_block(interface).map_err(to_io)?;
        out.write_all(blocks.get_ref())?;
        out.flush()?;
        blocks.get_mut().clear();
        let state = CaptureState {
            out: Some(out),
            blocks,
            calls: Vec::new(),
            write_errors: 0,
            unflushed: false,
            flushed_at_ns: 0,
        };
        Ok(CaptureSubscriber { state: Mutex::new(state), time_base_ns })
    }

    /// Returns the number of packets missing in the file, and of failed flushes.
    pub fn write_errors(&self) -> u64 {
        self.lock().write_errors
    }

    fn lock(&self) -> MutexGuard<'_, CaptureState<W>> {
        // A panic can leave half a block in the buffer, which the next one clears.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns how many of these bytes are whole blocks of a capture that this subscriber writes.
pub fn whole_blocks(bytes: &[u8]) -> usize {
    let mut whole = 0;
    while let Some(length) = bytes.get(whole + 4..whole + 8).and_then(|field| field.try_into().ok()) {
        let length = u32::from_le_bytes(length) as usize;
        match whole.checked_add(length) {
            Some(end) if length >= 12 && end <= bytes.len() => whole = end,
            _ => break,
        }
    }
    whole
}

fn to_io(error: PcapError) -> io::Error {
    match error {
        PcapError::IoError(error) => error,
        other => io::Error::other(other),
    }
}

impl<W: Write> CaptureState<W> {
    /// Writes a packet without a comment.
    fn packet(&mut self, time_ns: u64, direction: PacketDirection, path: &Path, ip_id: u16, payload: &[u8]) {
        self.commented(time_ns, direction, path, ip_id, payload, None);
    }

    fn commented(
        &mut self,
        time_ns: u64,
        direction: PacketDirection,
        path: &Path,
        ip_id: u16,
        payload: &[u8],
        comment: Option<String>,
    ) {
        let packet = encapsulate(path, ip_id, payload);
        let mut options = vec![EnhancedPacketOption::Flags(direction as u32)];
        let comments = comment.into_iter().chain(self.calls.drain(..));
        options.extend(comments.map(|text| EnhancedPacketOption::Comment(Cow::Owned(text))));
        let block = EnhancedPacketBlock {
            interface_id: 0,
            timestamp: Duration::from_nanos(time_ns),
            original_len: packet.len() as u32,
            data: Cow::Borrowed(&packet),
            options,
        };
        self.blocks.get_mut().clear();
        let made = self.blocks.write_pcapng_block(block).map_err(to_io);
        let Some(out) = &mut self.out else { return };
        if made.and_then(|_| out.write_all(self.blocks.get_ref())).is_err() {
            self.write_errors += 1;
        }
        self.unflushed = true;
    }

    fn flush(&mut self) {
        self.unflushed = false;
        if self.out.as_mut().is_some_and(|out| out.flush().is_err()) {
            self.write_errors += 1;
        }
    }

    fn flush_when_stale(&mut self, now_ns: u64) {
        if self.unflushed && now_ns.saturating_sub(self.flushed_at_ns) >= FLUSH_AFTER_NS {
            self.flushed_at_ns = now_ns;
            self.flush();
        }
    }
}

impl<W: Write + Send> Subscriber for CaptureSubscriber<W> {
    fn topics(&self) -> Topics {
        Topics::BATCHES | Topics::FAULTS
    }

    fn on_event(&self, at_ns: u64, event: &Event<'_>) {
        let time_ns = self.time_base_ns.wrapping_add(at_ns);
        let mut state = self.lock();
        match event {
            Event::BatchSent { path, segment_bytes, bytes, comments } => {
                for (index, segment) in bytes.chunks((*segment_bytes).max(1)).enumerate() {
                    let ip_id = batch::ip_id(index);
                    let comment = comments.iter().find(|(of_ip_id, _)| *of_ip_id == ip_id);
                    let comment = comment.map(|(_, text)| format!("{HARMED}{text}"));
                    state.commented(time_ns, PacketDirection::Outbound, path, ip_id, segment, comment);
                }
            }
            Event::PacketLost { path, bytes, comment } => {
                let comment = Some(format!("{LOST}{comment}"));
                state.commented(time_ns, PacketDirection::Outbound, path, 0, bytes, comment);
            }
            Event::BatchReceived { path, segment_bytes, bytes } => {
                for (index, segment) in bytes.chunks((*segment_bytes).max(1)).enumerate() {
                    let ip_id = likely_ip_id(&path.flow, index, segment);
                    state.packet(time_ns, PacketDirection::Inbound, path, ip_id, segment);
                }
            }
            Event::CallFaultApplied { fault } if state.calls.len() < MAX_CALLS => {
                state.calls.push(format!("{CALL}{}", fault.sentence()));
            }
            _ => return,
        }
        state.flush_when_stale(at_ns);
    }

    fn pass_time(&self, at_ns: u64) {
        self.lock().flush_when_stale(at_ns);
    }

    fn settle(&self, _patience: Duration) {
        // The process is exiting, perhaps in a signal handler that interrupted a writer: this does not wait
        // for that writer.
        match self.state.try_lock() {
            Ok(mut state) => state.flush(),
            Err(TryLockError::Poisoned(state)) => state.into_inner().flush(),
            Err(TryLockError::WouldBlock) => {}
        }
    }

    fn finish(&self) {
        let mut state = self.lock();
        state.flush();
        state.out = None;
    }
}

impl<W: Write + Send> Drop for CaptureSubscriber<W> {
    fn drop(&mut self) {
        self.state.get_mut().unwrap_or_else(PoisonError::into_inner).flush();
    }
}

/// Returns the IP ID for which a packet's ICRC was made; it is not visible on a UDP socket. A packet whose
/// ICRC is wrong for every IP ID gets the one its index suggests.
fn likely_ip_id(flow: &Flow, index: usize, packet: &[u8]) -> u16 {
    let predicted = batch::ip_id(index);
    if batch::is_made_for(flow, predicted, packet) {
        return predicted;
    }
    match icrc::verify(flow, predicted, packet) {
        IcrcVerdict::Recovered { ip_id } => ip_id,
        IcrcVerdict::Exact => 0,
        IcrcVerdict::Bad => predicted,
    }
}

/// A port that emits an event for every batch that the port below has sent or received, and for none that it
/// refuses. It is below all layers that change what is sent.
#[derive(Debug)]
pub struct TapPort<P> {
    inner: P,
    subscribers: Arc<Subscribers>,
}

impl<P: Port> TapPort<P> {
    /// Creates a port that notifies these subscribers of what passes `inner`.
    pub fn new(inner: P, subscribers: Arc<Subscribers>) -> TapPort<P> {
        TapPort { inner, subscribers }
    }
}

impl<P: Port> PortLayer for TapPort<P> {
    type Below = P;

    fn below(&self) -> &P {
        &self.inner
    }

    fn below_mut(&mut self) -> &mut P {
        &mut self.inner
    }

    /// Returns the limits of the port below, with an ICRC, which captures show.
    fn limits_through(&self, peer: Peer) -> PortLimits {
        PortLimits { needs_icrc: true, ..self.inner.limits(peer) }
    }

    fn transmit_through(&mut self, now_ns: u64, batch: &GsoBatch<'_>) -> Result<(), TransmitError> {
        // The receiver may have the packets before the call returns, so their time is that of its beginning.
        let left_ns = self.subscribers.now_ns();
        self.inner.transmit(now_ns, batch)?;
        let GsoBatch { path, segment_bytes, bytes, comments, .. } = *batch;
        // A size of zero makes one packet of everything.
        let segment_bytes = if segment_bytes == 0 { bytes.len() } else { segment_bytes };
        let event = Event::BatchSent { path, segment_bytes, bytes, comments };
        self.subscribers.deliver(left_ns, event.topics(), &event);
        Ok(())
    }

    fn receive_through(&mut self, now_ns: u64, handler: &mut dyn FnMut(&ReceivedBatch<'_>)) -> bool {
        let subscribers = &self.subscribers;
        let was_received = self.inner.receive(now_ns, &mut |received| {
            let path = Path {
                flow: received.flow,
                traffic_class: received.traffic_class,
                hop_limit: received.hop_limit,
                flow_label: 0,
            };
            let ReceivedBatch { segment_bytes, bytes, .. } = *received;
            if received.has_icrc {
                subscribers.emit(&Event::BatchReceived { path: &path, segment_bytes, bytes });
            } else {
                let sealed = batch::sealed(&path.flow, segment_bytes, bytes);
                subscribers.emit(&Event::BatchReceived { path: &path, segment_bytes, bytes: &sealed });
            }
            handler(received);
        });
        subscribers.pass_time(now_ns);
        was_received
    }
}

#[cfg(test)]
#[path = "capture_tests.rs"]
mod capture_tests;

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};
    use std::sync::Mutex;

    use pumice_model::event::{Subscriber, Topics};
    use pumice_model::port::NullPort;
    use pumice_platform::clock::{Clock, VirtualTime};
    use pumice_transport::path::Flow;

    use super::*;

    /// A port that takes 1000 ns to send.
    struct Slow(NullPort, VirtualTime);

    impl PortLayer for Slow {
        type Below = NullPort;

        fn below(&self) -> &NullPort {
            &self.0
        }

        fn below_mut(&mut self) -> &mut NullPort {
            &mut self.0
        }

        fn transmit_through(&mut self, _now_ns: u64, _batch: &GsoBatch<'_>) -> Result<(), TransmitError> {
            self.1.advance_to(self.1.now_ns() + 1000);
            Ok(())
        }
    }

    struct Times(Arc<Mutex<Vec<u64>>>);

    impl Subscriber for Times {
        fn topics(&self) -> Topics {
            Topics::BATCHES
        }

        fn on_event(&self, at_ns: u64, _event: &Event<'_>) {
            self.0.lock().unwrap().push(at_ns);
        }
    }

    #[test]
    fn a_batch_leaves_before_its_receiver_can_have_it() {
        let (time, times) = (VirtualTime::default(), Arc::new(Mutex::new(Vec::new())));
        let list: Vec<Box<dyn Subscriber>> = vec![Box::new(Times(Arc::clone(&times)))];
        let subscribers = Arc::new(Subscribers::new(list, Clock::Virtual(time.clone())));
        let mut port = TapPort::new(Slow(NullPort, time), subscribers);
        let (source, destination) = (IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V4(Ipv4Addr::LOCALHOST));
        let flow = Flow { source, destination, source_port: 4791, destination_port: 4791 };
        let path = Path { flow, traffic_class: 0, hop_limit: 64, flow_label: 0 };
        for _ in 0..2 {
            port.transmit(0, &GsoBatch::new(&path, 16, &[0; 16])).unwrap();
        }
        assert_eq!(*times.lock().unwrap(), [0, 1000]);
    }
}
