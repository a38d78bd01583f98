//! The yardstick: plain UDP of the same sizes over the same kind of sockets.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use pumice_device::port::{RawUdp, RawWait};

use crate::control::{Control, Served};
use crate::error::{PerfError, Result};
use crate::statistics::{Percentiles, Times};

/// Bytes under way in a stream of batches; more gains nothing on loopback, and this much fits the
/// receive buffer of a stock kernel.
const STREAM_WINDOW_BYTES: usize = 256 << 10;
/// Datagrams under way in a stream of single ones: the kernel charges at least 832 bytes for each.
const SINGLES_WINDOW: usize = 256;
/// A receiver gives credit this often per window.
const CREDITS_PER_WINDOW: usize = 4;
/// What came of a message is known after this long, even on a busy machine; then it counts as lost.
const LOST_AFTER: Duration = Duration::from_millis(200);
/// Bytes that one UDP send carries over IPv4, and segments that one batch has.
const MAX_BATCH_BYTES: usize = 65_507;
const MAX_SEGMENTS: usize = 64;
/// Empty polls between looks at the clock or the control connection.
const POLLS_PER_LOOK: u32 = 1024;

/// A stream as it is to be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stream {
    pub(crate) packet_bytes: usize,
    /// One send per packet, instead of batches.
    pub(crate) singles: bool,
}

impl Stream {
    fn segments(self) -> usize {
        if self.singles { 1 } else { (MAX_BATCH_BYTES / self.packet_bytes.max(1)).clamp(1, MAX_SEGMENTS) }
    }

    fn window_bytes(self) -> usize {
        if self.singles { SINGLES_WINDOW * self.packet_bytes } else { STREAM_WINDOW_BYTES }
    }

    /// Bytes for which the receiver gives one credit.
    pub(crate) fn credit_bytes(self) -> usize {
        (self.window_bytes() / CREDITS_PER_WINDOW).max(1)
    }
}

/// One end's plain socket.
#[derive(Debug)]
pub(crate) struct RawEnd {
    socket: RawUdp,
    yields: bool,
}

impl RawEnd {
    /// Opens a socket on a port of the system's choice.
    pub(crate) fn open(address: IpAddr) -> Result<RawEnd> {
        let socket = RawUdp::bind(address, 0).map_err(|error| PerfError::PlainUdp(error.to_string()))?;
        let limit = Some(Duration::from_millis(20));
        socket.set_wait_limit(limit).map_err(|error| PerfError::PlainUdp(format!("SO_RCVTIMEO: {error}")))?;
        // On one core, spinning keeps the other end from running.
        let yields = thread::available_parallelism().is_ok_and(|cores| cores.get() == 1);
        Ok(RawEnd { socket, yields })
    }

    pub(crate) fn address(&self) -> Result<SocketAddr> {
        self.socket.address().map_err(|error| PerfError::PlainUdp(error.to_string()))
    }

    /// Sends a stream for `duration`: bytes per second that arrived.
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
            // A look at the credits per batch costs nothing; per single datagram it would be half the cost.
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
                // As our own polling does: on a busy machine, spinning keeps the other end from running.
                thread::yield_now();
            }
            sent = sent.max(credited);
        }
    }

    /// Receives a stream, until the control connection says something.
    pub(crate) fn sink(
        &mut self,
        client: SocketAddr,
        credit_bytes: usize,
        control: &mut Control,
    ) -> Result<Served> {
        let (mut uncredited, mut messages, mut empty) = (0, 0, 0);
        loop {
            let bytes = self.received(RawWait::Spin)?;
            if bytes == 0 {
                empty += 1;
                if empty % POLLS_PER_LOOK == 0 && control.spoken_to() {
                    return Ok(Served { messages, ..Served::default() });
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

    /// Round trips of single datagrams for `duration`; `times` is for those of one round. None if no datagram
    /// was answered.
    pub(crate) fn ping_pong(
        &mut self,
        to: SocketAddr,
        packet_bytes: usize,
        wait: RawWait,
        duration: Duration,
        times: &mut Times,
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

    /// Sends everything back, until the control connection says something.
    pub(crate) fn echo(
        &mut self,
        client: SocketAddr,
        wait: RawWait,
        control: &mut Control,
    ) -> Result<Served> {
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
                return Ok(Served { messages, ..Served::default() });
            }
            self.idle();
        }
    }

    /// Takes away what an earlier round left.
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

    /// Bytes of what arrived, 0 if nothing did.
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
