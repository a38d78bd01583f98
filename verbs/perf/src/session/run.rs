//! A session with a server: rounds, then a report.

use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

use super::address::device_address;
use super::yardstick::Yardstick;
use crate::control::{ClientRequest, Contents, Control, Reply, Round, VERSION, unexpected};
use crate::endpoint::{Endpoint, Medium};
use crate::error::{PerfError, Result};
use crate::pattern::Tag;
use crate::plan::{MeasuredQuantity, Operation, Plan, Service};
use crate::raw::RawEndpoint;
use crate::report::{Report, RoundFigures, SessionTotals};
use crate::rounds::latency;
use crate::rounds::sender::{RoundLimit, send};
use crate::statistics::LatencySamples;

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
    pub(super) plan: Plan,
    pub(super) control: Control,
    pub(super) end: Endpoint,
    /// Plain socket, with the address of the server's.
    pub(super) raw: Option<(RawEndpoint, SocketAddr)>,
    /// Medium of packets to the other end when it was last determined.
    pub(super) medium: Option<Medium>,
    pub(super) second_core: Option<usize>,
    pub(super) times: LatencySamples,
    pub(super) next_tag: Tag,
    pub(super) totals: SessionTotals,
}

impl Session {
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
    pub(super) fn ours(&mut self, duration: Duration, qp_count: usize) -> Result<RoundFigures> {
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

fn unanswered() -> PerfError {
    PerfError::Lost("no message was answered in a whole round".to_owned())
}
