//! The measuring end.
//!
//! A session with a server: requests to it, rounds of the device, and yardsticks.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::time::Duration;

use pumice_device::port::RawWait;

use crate::control::{ClientRequest, Contents, Control, ReceiveTotals, Reply, Round, VERSION, unexpected};
use crate::endpoint::{Endpoint, Medium};
use crate::error::{PerfError, Result};
use crate::pattern::Tag;
use crate::plan::{MeasuredQuantity, Operation, Plan, Service};
use crate::raw::{RawEndpoint, Stream};
use crate::report::{Report, RoundFigures, SessionTotals};
use crate::rounds::{RoundLimit, latency, send};
use crate::statistics::LatencySamples;

/// Destination port of RoCEv2 packets.
const UDP_PORT: u16 = 4791;

/// Returns the address of this end's device: the given one, or the one through which the server is reached,
/// or, if that is taken on a machine that is the server's as well, another loopback address.
fn device_address(control: &Control, requested: Option<IpAddr>) -> Result<IpAddr> {
    if let Some(requested) = requested {
        return Ok(requested);
    }
    let (local, peer) = control.addresses().map_err(|error| PerfError::Control(error.to_string()))?;
    let free = |address: IpAddr| UdpSocket::bind((address, UDP_PORT)).is_ok();
    let same_machine = local == peer || peer.is_loopback();
    if !same_machine || (local != peer && free(local)) {
        return Ok(local);
    }
    if local.is_ipv6() {
        return Err(PerfError::SameAddress(local));
    }
    let mut candidates = (2..255).map(|last| IpAddr::V4(Ipv4Addr::new(127, 0, 0, last)));
    let found = candidates.find(|address| *address != peer && free(*address));
    found.ok_or(PerfError::NoLoopbackAddress)
}

/// A yardstick for rounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Yardstick {
    PlainUdp,
    /// Two threads that spin on cache lines.
    CacheLines,
    /// Two threads that sleep on a futex.
    Futex,
    /// Copies of 1 MiB from memory to memory.
    Memcpy,
}

impl Yardstick {
    /// Returns the yardstick of a plan whose packets go by this medium.
    fn of(plan: &Plan, medium: Option<&Medium>) -> Yardstick {
        match plan.quantity {
            _ if !medium.is_some_and(Medium::is_shared_memory) => Yardstick::PlainUdp,
            MeasuredQuantity::Latency if plan.events => Yardstick::Futex,
            MeasuredQuantity::Latency | MeasuredQuantity::Rate => Yardstick::CacheLines,
            MeasuredQuantity::Bandwidth => Yardstick::Memcpy,
        }
    }

    /// Returns its name in reports.
    fn name(self) -> &'static str {
        match self {
            Yardstick::PlainUdp => "plain UDP",
            Yardstick::CacheLines => "cache lines",
            Yardstick::Futex => "futex",
            Yardstick::Memcpy => "memcpy",
        }
    }
}

impl Session {
    fn tags(&mut self, count: u64) -> Tag {
        let first = self.next_tag;
        self.next_tag += count;
        first
    }

    fn start(&mut self, round: Round) -> Result<()> {
        match self.control.request_reply(&ClientRequest::Start(round))? {
            Reply::Started => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    fn stop(&mut self, sent: u64) -> Result<ReceiveTotals> {
        match self.control.request_reply(&ClientRequest::Stop { sent })? {
            Reply::Stopped(served) => Ok(served),
            other => Err(unexpected(&other)),
        }
    }

    fn fill_peer(&mut self, first: Tag, count: u64) -> Result<()> {
        self.confirm(&ClientRequest::Fill { tags: (first..first + count).collect() })
    }

    fn check_peer(&mut self, first: Tag, count: u64) -> Result<()> {
        self.confirm(&ClientRequest::Check { tags: (first..first + count).collect() })
    }

    fn confirm(&mut self, request: &ClientRequest) -> Result<()> {
        match self.control.request_reply(request)? {
            Reply::Checked | Reply::Filled => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    fn plain_udp_round(&mut self, duration: Duration, measured: &mut RoundFigures) -> Result<()> {
        let Some((mut raw, peer)) = self.raw.take() else { return Ok(()) };
        let outcome = self.raw_with(&mut raw, peer, duration, measured);
        self.raw = Some((raw, peer));
        outcome
    }

    fn raw_with(
        &mut self,
        raw: &mut RawEndpoint,
        peer: SocketAddr,
        duration: Duration,
        measured: &mut RoundFigures,
    ) -> Result<()> {
        let client = raw.address()?;
        raw.drain()?;
        let packet_bytes = self.plan.size_bytes.min(self.plan.mtu_bytes) + self.plan.header_bytes();
        if self.plan.quantity == MeasuredQuantity::Latency {
            if self.plan.size_bytes > self.plan.mtu_bytes {
                // One datagram is no yardstick for a message of several packets.
                return Ok(());
            }
            let wait = if self.plan.events { RawWait::Block } else { RawWait::Spin };
            self.start(Round::RawEcho { client, block: self.plan.events })?;
            let times = raw.ping_pong(peer, packet_bytes, wait, duration, &mut self.times)?;
            self.stop(0)?;
            // A machine that is busy with other work may lose every datagram of a round, which has no
            // yardstick then.
            measured.set_raw_round_trips(&self.plan, times);
            return Ok(());
        }
        let singles = self.plan.quantity == MeasuredQuantity::Rate;
        let stream = Stream { packet_bytes, singles };
        self.start(Round::RawStream { client, credit_bytes: stream.credit_bytes() })?;
        let bytes_per_second = raw.stream(peer, stream, duration)?;
        self.stop(0)?;
        measured.raw =
            Some(if singles { bytes_per_second / packet_bytes as f64 / 1e6 } else { bytes_per_second / 1e9 });
        Ok(())
    }

    /// Opens this end's device, makes the queue pairs of both ends and connects them. `stream` is connected
    /// to a [`Server`](crate::Server).
    ///
    /// # Errors
    /// Fails if the plan cannot be measured, if the server refuses, or if a device or queue pair is not
    /// available at either end.
    pub fn open(plan: &Plan, stream: TcpStream, options: &SessionOptions) -> Result<Session> {
        plan.check()?;
        let mut control = Control::new(stream)
            .map_err(|error| PerfError::Control(format!("the connection to the server failed: {error}")))?;
        let address = device_address(&control, options.address)?;
        let opened = control.request_reply(&ClientRequest::Open { version: VERSION, plan: plan.clone() })?;
        let Reply::Opened { end: peer, raw } = opened else { return Err(unexpected(&opened)) };
        let mut end = Endpoint::open(plan, address, options.capture.as_deref())?;
        let raw = match raw {
            Some(peer) => Some((RawEndpoint::open(address)?, peer)),
            None => None,
        };
        end.connect(&peer)?;
        match control.request_reply(&ClientRequest::Connect { end: end.info() })? {
            Reply::Connected => {}
            other => return Err(unexpected(&other)),
        }
        let (times, totals) = (LatencySamples::new(), SessionTotals::default());
        let (plan, second_core) = (plan.clone(), options.second_core);
        Ok(Session { plan, control, end, raw, medium: None, second_core, times, next_tag: 1, totals })
    }

    /// Runs the measurement: a warm-up, then all rounds of the plan, about `rounds` × `round_seconds` (as
    /// long again with plain UDP, or with several queue pairs). `after_round` gets the number of rounds that
    /// are done.
    ///
    /// # Errors
    /// Fails if a byte is wrong, a request failed, or the server is gone. The error contains what the server
    /// says about its own failure. The session cannot be used afterwards.
    pub fn run(&mut self, after_round: &mut dyn FnMut(usize)) -> Result<Report> {
        self.all_rounds(after_round).map_err(|error| self.with_final_error(error))
    }

    fn all_rounds(&mut self, after_round: &mut dyn FnMut(usize)) -> Result<Report> {
        let duration = Duration::from_secs_f64(self.plan.round_seconds);
        let mut rounds = Vec::with_capacity(self.plan.rounds);
        self.warm_up(WARM_UP.min(duration))?;
        for _ in 0..self.plan.rounds {
            if self.plan.verify {
                self.checked_phase()?;
            }
            let mut measured = self.ours(duration, self.plan.qp_count)?;
            if self.plan.qp_count > 1 {
                measured.one_qp = Some(self.ours(duration, 1)?.value);
            }
            self.raw_round(duration, &mut measured)?;
            rounds.push(measured);
            after_round(rounds.len());
        }
        self.end.settle(false)?;
        let Reply::Counted(peer) = self.control.request_reply(&ClientRequest::Count)? else {
            return Err(PerfError::Control("the server does not say what it counted".to_owned()));
        };
        self.end.settle(false)?;
        self.totals.traffic = [self.end.traffic(), peer];
        let yardstick = Yardstick::of(&self.plan, self.medium.as_ref());
        self.totals.yardstick = Some(yardstick.name()).filter(|_| self.plan.raw);
        self.totals.medium = self.end.medium();
        Ok(Report::new(&self.plan, &rounds, &self.totals))
    }

    /// Exchanges messages with the server for `duration`, without plain UDP and checks; returns round trips
    /// per second. For plans of [`Plan::latency`]; for others than SENDs, messages per second.
    ///
    /// # Errors
    /// Fails if a request failed, or if the server is gone.
    pub fn exchange(&mut self, duration: Duration) -> Result<f64> {
        let contents = Contents::Same { tag: 0 };
        self.start(Round::Ours { contents })?;
        let exchanged =
            latency::measure(&mut self.end, &self.plan, RoundLimit::Time(duration), &mut self.times)?;
        self.stop(exchanged.messages)?;
        Ok(exchanged.messages as f64 / exchanged.seconds)
    }

    /// Measures the times of the first `count` messages, at most 2^20, if no measurement was made in this
    /// session yet: the cost of a connection at its beginning, without a warm-up. For plans of
    /// [`Plan::latency`].
    ///
    /// # Errors
    /// Fails as [`exchange`](Session::exchange), and if no message was answered.
    pub fn first_messages(&mut self, count: u64) -> Result<MessageTimes> {
        self.start(Round::Ours { contents: Contents::Same { tag: 0 } })?;
        let limit = RoundLimit::Messages(count.min(1 << 20));
        let exchanged = latency::measure(&mut self.end, &self.plan, limit, &mut self.times)?;
        self.stop(exchanged.messages)?;
        let times = self.times.percentiles().ok_or_else(unanswered)?;
        let times = times.scaled(if self.plan.ping_pong() { 0.5 } else { 1.0 });
        Ok(MessageTimes { p50: times.p50, p99: times.p99 })
    }

    /// Runs a timed round of the device.
    fn ours(&mut self, duration: Duration, qp_count: usize) -> Result<RoundFigures> {
        let tag = self.prepare()?;
        self.start(Round::Ours { contents: Contents::Same { tag } })?;
        let mut measured = RoundFigures::default();
        let (messages, answered) = if self.plan.quantity == MeasuredQuantity::Latency {
            self.exchanged(duration, &mut measured)?
        } else {
            (self.streamed(duration, qp_count, &mut measured)?, 0)
        };
        self.totals.messages += messages;
        if self.plan.verify {
            self.check_contents(tag, messages, answered)?;
        }
        Ok(measured)
    }

    /// Runs a round of single messages; returns how many were sent and answered.
    fn exchanged(&mut self, duration: Duration, measured: &mut RoundFigures) -> Result<(u64, u64)> {
        let exchanged =
            latency::measure(&mut self.end, &self.plan, RoundLimit::Time(duration), &mut self.times)?;
        self.stop(exchanged.messages)?;
        self.totals.lost_messages += exchanged.lost;
        let times = self.times.percentiles().ok_or_else(unanswered)?;
        measured.set_times(times.scaled(if self.plan.ping_pong() { 0.5 } else { 1.0 }));
        Ok((exchanged.messages, exchanged.messages - exchanged.lost))
    }

    /// Runs a round of a stream; returns the number of messages.
    fn streamed(&mut self, duration: Duration, qp_count: usize, measured: &mut RoundFigures) -> Result<u64> {
        let sent = send(&mut self.end, &self.plan, qp_count, RoundLimit::Time(duration))?;
        let served = self.stop(sent.messages)?;
        let counted = self.plan.service == Service::Rc || self.plan.operation != Operation::Send;
        let arrived = if counted { sent.messages } else { served.messages.min(sent.messages) };
        self.totals.lost_messages += sent.messages - arrived;
        let per_second = arrived as f64 / sent.seconds;
        measured.value = match self.plan.quantity {
            MeasuredQuantity::Bandwidth => per_second * self.plan.size_bytes as f64 / 1e9,
            _ => per_second / 1e6,
        };
        Ok(sent.messages)
    }

    /// Adds what the server has said about its own failure, which may have come first, to a failure of this
    /// end.
    fn with_final_error(&mut self, here: PerfError) -> PerfError {
        match self.control.final_error() {
            Some(server) => PerfError::Both { here: Box::new(here), server },
            None => here,
        }
    }
}

/// Time for caches and the scheduler to settle before the first round.
const WARM_UP: Duration = Duration::from_millis(50);

/// Options of the measuring end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionOptions {
    /// Address of the device; by default the one through which the server is reached, or, if the server on
    /// the same machine has that one, a free loopback address.
    pub address: Option<IpAddr>,
    /// File for the device's packets, as pcapng; an old one is replaced.
    pub capture: Option<PathBuf>,
    /// Core of a second thread for the yardsticks of one host, from 0; by default any.
    pub second_core: Option<usize>,
}

/// Times of single messages, in µs: for a SEND half the time until the peer's answer, for others the time
/// until the completion.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MessageTimes {
    /// Median of the times.
    pub p50: f64,
    /// The 99th percentile of the times.
    pub p99: f64,
}

/// A measurement with one server.
#[derive(Debug)]
pub struct Session {
    plan: Plan,
    control: Control,
    end: Endpoint,
    /// Plain socket, with the address of the server's.
    raw: Option<(RawEndpoint, SocketAddr)>,
    /// Medium of packets to the other end when it was last determined.
    medium: Option<Medium>,
    second_core: Option<usize>,
    times: LatencySamples,
    next_tag: Tag,
    totals: SessionTotals,
}

fn unanswered() -> PerfError {
    PerfError::Lost("no message was answered in a whole round".to_owned())
}

mod checked;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::plan;
    use crate::plan::{Operation, Service};

    #[test]
    fn memory_is_compared_with_memory() {
        let of = |name: &str| Some(Medium { name: name.to_owned(), reason: None });
        let plan = |quantity, events| Plan { quantity, events, ..plan(Operation::Send, Service::Rc) };
        let with = [
            (plan(MeasuredQuantity::Latency, false), Yardstick::CacheLines),
            (plan(MeasuredQuantity::Latency, true), Yardstick::Futex),
            (plan(MeasuredQuantity::Rate, false), Yardstick::CacheLines),
            (plan(MeasuredQuantity::Bandwidth, false), Yardstick::Memcpy),
        ];
        for (plan, yardstick) in with {
            assert_eq!(Yardstick::of(&plan, of("shared memory").as_ref()), yardstick);
            assert_eq!(Yardstick::of(&plan, of("UDP").as_ref()), Yardstick::PlainUdp);
            assert_eq!(Yardstick::of(&plan, None), Yardstick::PlainUdp);
        }
    }
}
