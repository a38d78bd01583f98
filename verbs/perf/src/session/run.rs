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
use crate::plan::{Operation, Plan, Quantity, Service};
use crate::raw::RawEnd;
use crate::report::{Measured, Report, Totals};
use crate::rounds::latency;
use crate::rounds::sender::{Limit, send};
use crate::statistics::Times;

/// Time for caches and the scheduler to settle before the first round.
const WARM_UP: Duration = Duration::from_millis(50);

/// How the measuring end works.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionOptions {
    /// Address of the device; by default the one by which the server is reached, or, if the server on the
    /// same machine has that one, a free loopback address.
    pub address: Option<IpAddr>,
    /// A file for the device's packets, as pcapng; an old one is replaced.
    pub capture: Option<PathBuf>,
    /// Core of a second thread for the yardsticks of one host, from 0; by default any.
    pub second_core: Option<usize>,
}

/// Times of single messages, in µs: of a SEND half the time until the peer's answer, of others the time until
/// the completion.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MessageTimes {
    /// The time that half of them did not exceed.
    pub p50: f64,
    /// The time that 99 % of them did not exceed.
    pub p99: f64,
}

/// One measurement with one server.
#[derive(Debug)]
pub struct Session {
    pub(super) plan: Plan,
    pub(super) control: Control,
    pub(super) end: Endpoint,
    /// With the address of the server's.
    pub(super) raw: Option<(RawEnd, SocketAddr)>,
    /// What carried packets to the other end when it was asked for.
    pub(super) medium: Option<Medium>,
    pub(super) second_core: Option<usize>,
    pub(super) times: Times,
    pub(super) next_tag: Tag,
    pub(super) totals: Totals,
}

impl Session {
    /// Opens this end's device, makes the queue pairs of both ends and connects them. `stream` is connected
    /// to a [`Server`](crate::Server).
    ///
    /// # Errors
    /// The plan cannot be measured, the server refuses, or a device or queue pair cannot be had at either
    /// end.
    pub fn open(plan: &Plan, stream: TcpStream, options: &SessionOptions) -> Result<Session> {
        plan.check()?;
        let mut control = Control::new(stream)
            .map_err(|error| PerfError::Control(format!("the connection to the server failed: {error}")))?;
        let address = device_address(&control, options.address)?;
        let opened = control.ask(&ClientRequest::Open { version: VERSION, plan: plan.clone() })?;
        let Reply::Opened { end: peer, raw } = opened else { return Err(unexpected(&opened)) };
        let mut end = Endpoint::open(plan, address, options.capture.as_deref())?;
        let raw = match raw {
            Some(peer) => Some((RawEnd::open(address)?, peer)),
            None => None,
        };
        end.connect(&peer)?;
        match control.ask(&ClientRequest::Connect { end: end.info() })? {
            Reply::Connected => {}
            other => return Err(unexpected(&other)),
        }
        let (times, totals) = (Times::new(), Totals::default());
        let (plan, second_core) = (plan.clone(), options.second_core);
        Ok(Session { plan, control, end, raw, medium: None, second_core, times, next_tag: 1, totals })
    }

    /// Measures: a warm-up, then all rounds of the plan, about `rounds` × `round_seconds` (as long again with
    /// plain UDP, or with several queue pairs). `after_round` is told how many rounds are done.
    ///
    /// # Errors
    /// A byte is wrong, a request failed, or the server is gone. What the server says about its own failure
    /// is in the error too. The session is of no use afterwards.
    pub fn run(&mut self, after_round: &mut dyn FnMut(usize)) -> Result<Report> {
        self.all_rounds(after_round).map_err(|error| self.with_last_words(error))
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
        let Reply::Counted(peer) = self.control.ask(&ClientRequest::Count)? else {
            return Err(PerfError::Control("the server does not say what it counted".to_owned()));
        };
        self.end.settle(false)?;
        self.totals.traffic = [self.end.traffic(), peer];
        let yardstick = Yardstick::of(&self.plan, self.medium.as_ref());
        self.totals.yardstick = Some(yardstick.name()).filter(|_| self.plan.raw);
        self.totals.medium = self.end.medium();
        Ok(Report::new(&self.plan, &rounds, &self.totals))
    }

    /// Exchanges messages with the server for `duration`, without plain UDP and checks: round trips per
    /// second. For plans of [`Plan::latency`]; of others than SENDs, messages per second.
    ///
    /// # Errors
    /// A request failed, or the server is gone.
    pub fn exchange(&mut self, duration: Duration) -> Result<f64> {
        let contents = Contents::Same { tag: 0 };
        self.start(Round::Ours { contents })?;
        let exchanged = latency::measure(&mut self.end, &self.plan, Limit::Time(duration), &mut self.times)?;
        self.stop(exchanged.messages)?;
        Ok(exchanged.messages as f64 / exchanged.seconds)
    }

    /// The times of the first `count` messages, at most 2^20, if nothing was measured in this session yet:
    /// what a connection costs in its beginning, without a warm-up. For plans of [`Plan::latency`].
    ///
    /// # Errors
    /// As [`exchange`](Session::exchange), or no message was answered.
    pub fn first_messages(&mut self, count: u64) -> Result<MessageTimes> {
        self.start(Round::Ours { contents: Contents::Same { tag: 0 } })?;
        let limit = Limit::Messages(count.min(1 << 20));
        let exchanged = latency::measure(&mut self.end, &self.plan, limit, &mut self.times)?;
        self.stop(exchanged.messages)?;
        let times = self.times.percentiles().ok_or_else(unanswered)?;
        let times = times.scaled(if self.plan.ping_pong() { 0.5 } else { 1.0 });
        Ok(MessageTimes { p50: times.p50, p99: times.p99 })
    }

    /// A timed round of our own.
    pub(super) fn ours(&mut self, duration: Duration, qp_count: usize) -> Result<Measured> {
        let tag = self.prepare()?;
        self.start(Round::Ours { contents: Contents::Same { tag } })?;
        let mut measured = Measured::default();
        let (messages, answered) = if self.plan.quantity == Quantity::Latency {
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

    /// A round of single messages: how many, and how many were answered.
    fn exchanged(&mut self, duration: Duration, measured: &mut Measured) -> Result<(u64, u64)> {
        let exchanged = latency::measure(&mut self.end, &self.plan, Limit::Time(duration), &mut self.times)?;
        self.stop(exchanged.messages)?;
        self.totals.lost_messages += exchanged.lost;
        let times = self.times.percentiles().ok_or_else(unanswered)?;
        measured.set_times(times.scaled(if self.plan.ping_pong() { 0.5 } else { 1.0 }));
        Ok((exchanged.messages, exchanged.messages - exchanged.lost))
    }

    /// A round of a stream: how many messages.
    fn streamed(&mut self, duration: Duration, qp_count: usize, measured: &mut Measured) -> Result<u64> {
        let sent = send(&mut self.end, &self.plan, qp_count, Limit::Time(duration))?;
        let served = self.stop(sent.messages)?;
        let counted = self.plan.service == Service::Rc || self.plan.operation != Operation::Send;
        let arrived = if counted { sent.messages } else { served.messages.min(sent.messages) };
        self.totals.lost_messages += sent.messages - arrived;
        let per_second = arrived as f64 / sent.seconds;
        measured.value = match self.plan.quantity {
            Quantity::Bandwidth => per_second * self.plan.size_bytes as f64 / 1e9,
            _ => per_second / 1e6,
        };
        Ok(sent.messages)
    }

    /// A failure of this end, with what the server has said about its own, which may have come first.
    fn with_last_words(&mut self, here: PerfError) -> PerfError {
        match self.control.last_words() {
            Some(server) => PerfError::Both { here: Box::new(here), server },
            None => here,
        }
    }
}

fn unanswered() -> PerfError {
    PerfError::Lost("no message was answered in a whole round".to_owned())
}
