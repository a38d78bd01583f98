//! The yardstick: plain UDP with the same sizes over the same kind of sockets.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use pumice_device::port::{RawUdp, RawWait};

use crate::control::{Control, ReceiveTotals};
use crate::error::{PerfError, Result};
use crate::statistics::{LatencySamples, Percentiles};

/// Number of bytes under way in a stream of batches; more gains nothing on loopback, and this many fit the
/// receive buffer of a stock kernel.
const STREAM_WINDOW_BYTES: usize = 256 << 10;
/// Number of datagrams under way in a stream of single ones: the kernel charges at least 832 bytes for each.
const SINGLES_WINDOW: usize = 256;
/// Number of credits that a receiver gives per window.
const CREDITS_PER_WINDOW: usize = 4;
/// Time after which a message without an answer counts as lost, even on a busy machine.
const LOST_AFTER: Duration = Duration::from_millis(200);
/// Largest number of bytes of one UDP send over IPv4, and of segments of one batch.
const MAX_BATCH_BYTES: usize = 65_507;
const MAX_SEGMENTS: usize = 64;
/// Number of empty polls between checks of the clock or the control connection.
const POLLS_PER_LOOK: u32 = 1024;

/// Parameters of a stream to be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stream {
    pub(crate) packet_bytes: usize,
    /// True if each packet is sent alone, instead of in batches.
    pub(crate) singles: bool,
}

impl Stream {
    fn segments(self) -> usize {
        if self.singles { 1 } else { (MAX_BATCH_BYTES / self.packet_bytes.max(1)).clamp(1, MAX_SEGMENTS) }
    }

    fn window_bytes(self) -> usize {
        if self.singles { SINGLES_WINDOW * self.packet_bytes } else { STREAM_WINDOW_BYTES }
    }

    /// Returns the number of bytes for which the receiver gives one credit.
    pub(crate) fn credit_bytes(self) -> usize {
        (self.window_bytes() / CREDITS_PER_WINDOW).max(1)
    }
}

/// The plain socket of one end.
#[derive(Debug)]
pub(crate) struct RawEndpoint {
    socket: RawUdp,
    yields: bool,
}

impl RawEndpoint {
    /// Opens a socket on a port that the system chooses.
    pub(crate) fn open(address: IpAddr) -> Result<RawEndpoint> {
        let socket = RawUdp::bind(address, 0).map_err(|error| PerfError::PlainUdp(error.to_string()))?;
        let limit = Some(Duration::from_millis(20));
        socket.set_wait_limit(limit).map_err(|error| PerfError::PlainUdp(format!("SO_RCVTIMEO: {error}")))?;
        // On one core, spinning keeps the other end from running.
        let yields = thread::available_parallelism().is_ok_and(|cores| cores.get() == 1);
        Ok(RawEndpoint { socket, yields })
    }

    pub(crate) fn address(&self) -> Result<SocketAddr> {
        self.socket.address().map_err(|error| PerfError::PlainUdp(error.to_string()))
    }

    /// Sends a stream for `duration`; returns the bytes per second that arrived.
    pub(crate) fn stream(&mut self, to: SocketAddr, stream: Stream, duration: Duration) -> Result<f64> {
        let segments = stream.segments();
        let window_bytes = stream.window_bytes().max(segments * stream.packet_bytes);
        let credit_bytes = stream.credit_bytes();
        let start = Instant::now();
        let (mut sent, mut credited, mut last_credit) = (0_usize, 0_usize, start);
        loop {
            let now = Instant::now();
            if now - start >= duration {
                return Ok(credited as f64 / (now - start).as_secs_f64());
            }
            // A check of the credits per batch costs nothing; per single datagram it would be half the cost.
            let mut burst = if stream.singles { 16 } else { 1 };
            while burst > 0 && sent - credited < window_bytes {
                burst -= 1;
                match self.socket.stream_send(to, stream.packet_bytes, segments) {
                    Ok(bytes) => sent += bytes,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) => {
                        return Err(PerfError::PlainUdp(format!(
                            "plain UDP cannot be sent to {to}: {error}"
                        )));
                    }
                }
            }
            while self.received(RawWait::Spin)? > 0 {
                credited += credit_bytes;
                last_credit = now;
            }
            if sent - credited.min(sent) >= window_bytes {
                if now - last_credit > LOST_AFTER {
                    sent = credited;
                    last_credit = now;
                }
                // The device's own polling yields, too: on a busy machine, spinning keeps the other end from
                // running.
                thread::yield_now();
            }
            sent = sent.max(credited);
        }
    }

    /// Receives a stream, until a message arrives on the control connection.
    pub(crate) fn sink(
        &mut self,
        client: SocketAddr,
        credit_bytes: usize,
        control: &mut Control,
    ) -> Result<ReceiveTotals> {
        let (mut uncredited, mut messages, mut empty) = (0, 0, 0);
        loop {
            let bytes = self.received(RawWait::Spin)?;
            if bytes == 0 {
                empty += 1;
                if empty % POLLS_PER_LOOK == 0 && control.spoken_to() {
                    return Ok(ReceiveTotals { messages, ..ReceiveTotals::default() });
                }
                thread::yield_now();
                continue;
            }
            messages += 1;
            uncredited += bytes;
            while uncredited >= credit_bytes {
                uncredited -= credit_bytes;
                let _ = self.socket.stream_send(client, 8, 1);
            }
        }
    }

    /// Measures round trips of single datagrams for `duration`; `times` has room for those of one round.
    /// Returns `None` if no datagram was answered.
    pub(crate) fn ping_pong(
        &mut self,
        to: SocketAddr,
        packet_bytes: usize,
        wait: RawWait,
        duration: Duration,
        times: &mut LatencySamples,
    ) -> Result<Option<Percentiles>> {
        times.clear();
        let start = Instant::now();
        let mut last = start;
        while last - start < duration {
            self.send_one(to, packet_bytes)?;
            let mut empty = 0_u32;
            let answered = loop {
                if self.received(wait)? > 0 {
                    break true;
                }
                empty += 1;
                let look = wait == RawWait::Block || empty.is_multiple_of(POLLS_PER_LOOK);
                if look && last.elapsed() > LOST_AFTER {
                    break false;
                }
                self.idle();
            };
            let now = Instant::now();
            if answered {
                times.push(now - last);
            }
            last = now;
        }
        Ok(times.percentiles())
    }

    /// Sends all datagrams back, until a message arrives on the control connection.
    pub(crate) fn echo(
        &mut self,
        client: SocketAddr,
        wait: RawWait,
        control: &mut Control,
    ) -> Result<ReceiveTotals> {
        let (mut messages, mut empty) = (0, 0_u32);
        loop {
            let bytes = self.received(wait)?;
            if bytes > 0 {
                self.send_one(client, bytes)?;
                messages += 1;
                continue;
            }
            empty += 1;
            let look = wait == RawWait::Block || empty.is_multiple_of(POLLS_PER_LOOK);
            if look && control.spoken_to() {
                return Ok(ReceiveTotals { messages, ..ReceiveTotals::default() });
            }
            self.idle();
        }
    }

    /// Drops the datagrams that an earlier round left.
    pub(crate) fn drain(&mut self) -> Result<()> {
        while self.received(RawWait::Spin)? > 0 {}
        Ok(())
    }

    fn send_one(&mut self, to: SocketAddr, bytes: usize) -> Result<()> {
        loop {
            match self.socket.stream_send(to, bytes, 1) {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.idle(),
                Err(error) => {
                    return Err(PerfError::PlainUdp(format!("plain UDP cannot be sent to {to}: {error}")));
                }
            }
        }
    }

    /// Returns the number of bytes that arrived, 0 if none did.
    fn received(&mut self, wait: RawWait) -> Result<usize> {
        match self.socket.receive_batch(wait) {
            Ok(bytes) => Ok(bytes),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            Err(error) => Err(PerfError::PlainUdp(format!("plain UDP cannot be received: {error}"))),
        }
    }

    fn idle(&self) {
        if self.yields {
            thread::yield_now();
        }
    }
}
