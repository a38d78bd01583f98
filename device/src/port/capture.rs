//! A copy of everything that passes a port, for Wireshark.

use std::fs::File;
use std::io::{self, BufWriter, Write};

use pumice_transport::path::{Flow, Path};
use pumice_transport::wire::{Verdict, encapsulate, icrc};

use super::pcapng::{self, Direction};
use super::segments;
use super::{GsoBatch, Port, PortLayer, Received, TransmitError};

/// How stale the file may be, so that one can look at it while it grows.
const FLUSH_AFTER_NS: u64 = 10_000_000;

/// A port around a port that writes every packet sent and received to a pcapng file, with the IP and UDP
/// headers it had: the UDP checksum is left 0, the IP ID of a received packet is the one its ICRC was made
/// for, if any. Nothing is written for packets the port below refuses.
///
/// Errors while writing never disturb the traffic: they are counted, and packets are missing in the file.
#[derive(Debug)]
pub struct CapturePort<P, W: Write + Send = BufWriter<File>> {
    inner: P,
    out: W,
    time_base_ns: u64,
    write_errors: u64,
    unflushed: bool,
    flushed_at_ns: u64,
}

impl<P: Port> CapturePort<P> {
    /// Captures what passes `inner` to a new file, replacing an old one. `time_base_ns` is what to add to the
    /// caller's clock to get nanoseconds since 1970 (0 for virtual time).
    ///
    /// # Errors
    /// The file cannot be created or written.
    pub fn create(inner: P, file: &std::path::Path, time_base_ns: u64) -> io::Result<CapturePort<P>> {
        CapturePort::new(inner, BufWriter::with_capacity(1 << 18, File::create(file)?), time_base_ns)
    }
}

impl<P: Port, W: Write + Send> CapturePort<P, W> {
    /// Captures what passes `inner` to any writer.
    ///
    /// # Errors
    /// The head of the capture cannot be written.
    pub fn new(inner: P, mut out: W, time_base_ns: u64) -> io::Result<CapturePort<P, W>> {
        pcapng::write_head(&mut out, "pumice")?;
        out.flush()?;
        Ok(CapturePort { inner, out, time_base_ns, write_errors: 0, unflushed: false, flushed_at_ns: 0 })
    }

    /// Packets missing in the file, and failed flushes.
    pub fn write_errors(&self) -> u64 {
        self.write_errors
    }

    /// The port below.
    pub fn inner(&self) -> &P {
        &self.inner
    }

    /// Writes out what is buffered. Also happens by itself now and then, and when the port is dropped.
    pub fn flush(&mut self) {
        self.unflushed = false;
        if self.out.flush().is_err() {
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

/// Where packets of one call go.
struct Sink<'a, W> {
    out: &'a mut W,
    errors: &'a mut u64,
    time_ns: u64,
    direction: Direction,
}

impl<W: Write> Sink<'_, W> {
    fn packet(&mut self, path: &Path, ip_id: u16, payload: &[u8]) {
        let packet = encapsulate(path, ip_id, payload);
        if pcapng::write_packet(self.out, self.time_ns, self.direction, &packet).is_err() {
            *self.errors += 1;
        }
    }
}

impl<P: Port, W: Write + Send> PortLayer for CapturePort<P, W> {
    type Below = P;

    fn below(&self) -> &P {
        &self.inner
    }

    fn below_mut(&mut self) -> &mut P {
        &mut self.inner
    }

    fn transmit_through(&mut self, now_ns: u64, train: &GsoBatch<'_>) -> Result<(), TransmitError> {
        self.inner.transmit(now_ns, train)?;
        let mut sink = Sink {
            out: &mut self.out,
            errors: &mut self.write_errors,
            time_ns: self.time_base_ns.wrapping_add(now_ns),
            direction: Direction::Outbound,
        };
        for (index, segment) in train.segments().enumerate() {
            sink.packet(train.path, segments::ip_id(index), segment);
        }
        self.unflushed = true;
        self.flush_when_stale(now_ns);
        Ok(())
    }

    fn receive_through(&mut self, now_ns: u64, handler: &mut dyn FnMut(&Received<'_>)) -> bool {
        let mut sink = Sink {
            out: &mut self.out,
            errors: &mut self.write_errors,
            time_ns: self.time_base_ns.wrapping_add(now_ns),
            direction: Direction::Inbound,
        };
        let took = self.inner.receive(now_ns, &mut |received| {
            let path = Path {
                flow: received.flow,
                traffic_class: received.traffic_class,
                hop_limit: received.hop_limit,
                flow_label: 0,
            };
            for (index, segment) in received.bytes.chunks(received.segment_bytes.max(1)).enumerate() {
                sink.packet(&path, likely_ip_id(&received.flow, index, segment), segment);
            }
            handler(received);
        });
        self.unflushed |= took;
        self.flush_when_stale(now_ns);
        took
    }
}

impl<P, W: Write + Send> Drop for CapturePort<P, W> {
    fn drop(&mut self) {
        let _ = self.out.flush(); // nobody is left to be told
    }
}

/// The IP ID is not visible on a UDP socket, but the ICRC was made for it. A packet whose ICRC is wrong for
/// every IP ID gets the one its place suggests.
fn likely_ip_id(flow: &Flow, index: usize, packet: &[u8]) -> u16 {
    let predicted = segments::ip_id(index);
    if segments::is_made_for(flow, predicted, packet) {
        return predicted;
    }
    match icrc::verify(flow, predicted, packet) {
        Verdict::Recovered { ip_id } => ip_id,
        Verdict::Exact => 0,
        Verdict::Bad => predicted,
    }
}

#[cfg(test)]
#[path = "capture_tests.rs"]
mod tests;
