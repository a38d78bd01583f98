//! The measuring end: a session with a server, rounds, reports.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use indicatif::ProgressBar;
use pumice_device::port::RawWait;

use super::control::{self, Contents, Control, Reply, Request, Round, Served, unexpected};
use super::endpoint::{Endpoint, receives_per_queue};
use super::latency;
use super::options::EndSettings;
use super::pattern::Tag;
use super::plan::{Operation, Plan, Quantity, Service};
use super::raw::{RawEnd, Stream};
use super::report::{Account, Measured, Report};
use super::sender::{Limit, send};
use super::statistics::Times;

/// Where RoCEv2 packets go.
const UDP_PORT: u16 = 4791;
/// Time for caches and the scheduler to settle before the first round.
const WARM_UP: Duration = Duration::from_millis(50);
/// Messages and bytes that a checked phase of a round sends at most.
const CHECKED_MESSAGES: u64 = 4096;
const CHECKED_BYTES: u64 = 16 << 20;
/// Times that they are filled anew.
const CHECKED_BATCHES: usize = 32;
/// Checked ping-pongs per round.
const CHECKED_ANSWERS: u64 = 64;

/// One test with one server.
#[derive(Debug)]
pub(crate) struct Session<'a> {
    plan: &'a Plan,
    control: Control,
    end: Endpoint,
    raw: Option<(RawEnd, SocketAddr)>,
    times: Times,
    next_tag: Tag,
    account: Account,
}

/// Connects to a server by name or address.
///
/// # Errors
/// A sentence.
pub(crate) fn reach(host: &str, port: u16) -> Result<TcpStream, String> {
    TcpStream::connect((host, port)).map_err(|error| {
        format!("no server at {host}, TCP port {port}: {error}; start \"pumice perf server\" there first")
    })
}

/// The address of this end's device: as told, or the one by which the server is reached, or, if that is
/// taken on a machine that is the server's as well, another loopback address.
fn device_address(control: &Control, told: Option<IpAddr>) -> Result<IpAddr, String> {
    if let Some(told) = told {
        return Ok(told);
    }
    let (local, peer) = control.addresses().map_err(|error| error.to_string())?;
    let free = |address: IpAddr| UdpSocket::bind((address, UDP_PORT)).is_ok();
    let same_machine = local == peer || peer.is_loopback();
    if !same_machine || (local != peer && free(local)) {
        return Ok(local);
    }
    if local.is_ipv6() {
        return Err(format!(
            "client and server would both need UDP port {UDP_PORT} of {local}: use the server's IPv4 \
            address, or --addr"
        ));
    }
    let mut candidates = (2..255).map(|last| IpAddr::V4(Ipv4Addr::new(127, 0, 0, last)));
    let found = candidates.find(|address| *address != peer && free(*address));
    found.ok_or_else(|| format!("no loopback address has UDP port {UDP_PORT} free: use --addr"))
}

impl<'a> Session<'a> {
    /// Makes both ends' queue pairs and connects them.
    ///
    /// # Errors
    /// A sentence.
    pub(crate) fn open(
        plan: &'a Plan,
        stream: TcpStream,
        settings: &EndSettings,
    ) -> Result<Session<'a>, String> {
        let mut control =
            Control::new(stream).map_err(|error| format!("the connection to the server failed: {error}"))?;
        let address = device_address(&control, settings.addr)?;
        let opened = control.ask(&Request::Open { version: control::VERSION, plan: plan.clone() })?;
        let Reply::Opened { end: peer, raw } = opened else { return Err(unexpected(&opened)) };
        let mut end = Endpoint::open(plan, address, settings.capture.as_deref())?;
        let raw = match raw {
            Some(peer) => Some((RawEnd::open(address)?, peer)),
            None => None,
        };
        end.connect(&peer)?;
        match control.ask(&Request::Connect { end: end.info() })? {
            Reply::Connected => {}
            other => return Err(unexpected(&other)),
        }
        let (times, account) = (Times::new(), Account::default());
        Ok(Session { plan, control, end, raw, times, next_tag: 1, account })
    }

    /// All rounds.
    ///
    /// # Errors
    /// A sentence: a wrong byte, a failed request, or the server is gone.
    pub(crate) fn run(&mut self, progress: &ProgressBar) -> Result<Report, String> {
        let duration = Duration::from_secs_f64(self.plan.round_seconds);
        let mut rounds = Vec::with_capacity(self.plan.rounds);
        self.ours(WARM_UP.min(duration), self.plan.qp_count)?;
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
            progress.inc(1);
        }
        progress.finish_and_clear();
        self.end.settle(false)?;
        let Reply::Counted(peer) = self.control.ask(&Request::Count)? else {
            return Err("the server does not say what it counted".to_owned());
        };
        self.end.settle(false)?;
        self.account.traffic = [self.end.traffic(), peer];
        Ok(Report::new(self.plan, &rounds, &self.account))
    }

    /// Round trips of a timed ping-pong round: how many per second.
    ///
    /// # Errors
    /// A sentence.
    pub(crate) fn exchange(&mut self, duration: Duration) -> Result<f64, String> {
        let contents = Contents::Same { tag: 0 };
        self.start(Round::Ours { contents })?;
        let exchanged = latency::measure(&mut self.end, self.plan, duration, &mut self.times)?;
        self.stop(exchanged.messages)?;
        Ok(exchanged.messages as f64 / exchanged.seconds)
    }

    /// A timed round of our own.
    fn ours(&mut self, duration: Duration, qp_count: usize) -> Result<Measured, String> {
        let tag = self.prepare()?;
        self.start(Round::Ours { contents: Contents::Same { tag } })?;
        let mut measured = Measured::default();
        let messages;
        let mut answered = 0;
        if self.plan.quantity == Quantity::Latency {
            let exchanged = latency::measure(&mut self.end, self.plan, duration, &mut self.times)?;
            messages = exchanged.messages;
            answered = messages - exchanged.lost;
            self.stop(messages)?;
            self.account.lost_messages += exchanged.lost;
            let times = self.times.percentiles().ok_or("no message was answered in a whole round")?;
            measured.set_times(times.scaled(if self.plan.ping_pong() { 0.5 } else { 1.0 }));
        } else {
            let sent = send(&mut self.end, self.plan, qp_count, Limit::Time(duration))?;
            messages = sent.messages;
            let served = self.stop(messages)?;
            let counted = self.plan.service == Service::Rc || self.plan.operation != Operation::Send;
            let arrived = if counted { sent.messages } else { served.messages.min(sent.messages) };
            self.account.lost_messages += sent.messages - arrived;
            let per_second = arrived as f64 / sent.seconds;
            measured.value = match self.plan.quantity {
                Quantity::Bandwidth => per_second * self.plan.size_bytes as f64 / 1e9,
                _ => per_second / 1e6,
            };
        }
        self.account.messages += messages;
        if self.plan.verify {
            self.check_contents(tag, messages, answered)?;
        }
        Ok(measured)
    }

    /// Before a timed round: contents that the memory did not have before.
    fn prepare(&mut self) -> Result<Tag, String> {
        let tag = self.next_tag;
        self.next_tag += self.plan.slot_count() as u64;
        if !self.plan.verify {
            return Ok(tag);
        }
        match self.plan.operation {
            Operation::Send => self.end.fill_sends(tag)?,
            Operation::Write => {
                for slot in 0..self.plan.slot_count() {
                    self.end.fill_send(slot, tag + slot as u64)?;
                }
            }
            Operation::Read => self.fill_peer(tag, self.plan.slot_count() as u64)?,
            Operation::Atomic => {}
        }
        Ok(tag)
    }

    /// After a timed round: what is now in the memory that messages went to.
    fn check_contents(&mut self, tag: Tag, messages: u64, answered: u64) -> Result<(), String> {
        let slots = messages.min(self.plan.slot_count() as u64);
        match self.plan.operation {
            // The receiver looked at it when the round ended; answers ended up here, in every buffer once
            // there were as many as buffers. (A lost datagram can end a short round before that.)
            Operation::Send if self.plan.ping_pong() => {
                if answered >= receives_per_queue(self.plan) as u64 {
                    self.end.check_receive(0, tag)?;
                }
                Ok(())
            }
            Operation::Send => Ok(()),
            Operation::Write => self.check_peer(tag, slots),
            Operation::Read => (0..slots).try_for_each(|slot| self.end.check_send(slot as usize, tag + slot)),
            Operation::Atomic => {
                let values = self.end.expected_counters();
                self.confirm(&Request::CheckCounters { values })
            }
        }
    }

    /// Messages that are all different, each compared in full where it arrives.
    fn checked_phase(&mut self) -> Result<(), String> {
        if self.plan.operation == Operation::Atomic {
            // Every result of every round is compared anyway.
            let before = self.end.checked_results();
            self.account.checked_messages = before;
            return Ok(());
        }
        if self.plan.ping_pong() {
            let first = self.tags(CHECKED_ANSWERS);
            self.start(Round::Ours { contents: Contents::Numbered { first } })?;
            latency::check_answers(&mut self.end, self.plan, first, CHECKED_ANSWERS)?;
            let served = self.stop(CHECKED_ANSWERS)?;
            // There and back.
            self.account.checked_messages += 2 * served.checked;
            return Ok(());
        }
        let batch = self.end.checkable_messages();
        let most = (CHECKED_BYTES / self.plan.size_bytes.max(1) as u64).clamp(1, CHECKED_MESSAGES);
        let mut checked = 0;
        for _ in 0..CHECKED_BATCHES {
            checked += self.checked_batch(batch.min(most))?;
            if checked >= most {
                break;
            }
        }
        self.account.checked_messages += checked;
        Ok(())
    }

    fn checked_batch(&mut self, count: u64) -> Result<u64, String> {
        let first = self.tags(count);
        let limit = Limit::Messages(count);
        match self.plan.operation {
            Operation::Read => self.fill_peer(first, count)?,
            _ => (0..count).try_for_each(|slot| self.end.fill_send(slot as usize, first + slot))?,
        }
        let qp_count = self.plan.qp_count;
        if self.plan.operation == Operation::Send {
            self.start(Round::Ours { contents: Contents::Numbered { first } })?;
            send(&mut self.end, self.plan, qp_count, limit)?;
            let served = self.stop(count)?;
            return Ok(served.checked.max(1));
        }
        self.start(Round::Ours { contents: Contents::Same { tag: first } })?;
        send(&mut self.end, self.plan, qp_count, limit)?;
        self.stop(count)?;
        if self.plan.operation == Operation::Read {
            (0..count).try_for_each(|slot| self.end.check_send(slot as usize, first + slot))?;
        } else {
            self.check_peer(first, count)?;
        }
        Ok(count)
    }

    fn raw_round(&mut self, duration: Duration, measured: &mut Measured) -> Result<(), String> {
        let Some((mut raw, peer)) = self.raw.take() else { return Ok(()) };
        let outcome = self.raw_with(&mut raw, peer, duration, measured);
        self.raw = Some((raw, peer));
        outcome
    }

    fn raw_with(
        &mut self,
        raw: &mut RawEnd,
        peer: SocketAddr,
        duration: Duration,
        measured: &mut Measured,
    ) -> Result<(), String> {
        let client = raw.address()?;
        raw.drain()?;
        let packet_bytes = self.plan.size_bytes.min(self.plan.mtu_bytes) + self.plan.header_bytes();
        if self.plan.quantity == Quantity::Latency {
            if self.plan.size_bytes > self.plan.mtu_bytes {
                // One datagram is no yardstick for a message of several packets.
                return Ok(());
            }
            let wait = if self.plan.events { RawWait::Block } else { RawWait::Spin };
            self.start(Round::RawEcho { client, block: self.plan.events })?;
            let times = raw.ping_pong(peer, packet_bytes, wait, duration, &mut self.times)?;
            self.stop(0)?;
            // A machine that is busy with other work may lose every datagram of a round: this round has no
            // yardstick then.
            let Some(times) = times else { return Ok(()) };
            measured.raw_round_trip = Some(times.p50);
            // One way; a WRITE's completion is compared with it too when the target is passive.
            let one_way = self.plan.ping_pong() || self.plan.passive;
            measured.set_raw_times(times.scaled(if one_way { 0.5 } else { 1.0 }));
            if self.plan.ping_pong() {
                measured.raw_round_trip = None;
            }
            return Ok(());
        }
        let singles = self.plan.quantity == Quantity::Rate;
        let stream = Stream { packet_bytes, singles };
        self.start(Round::RawStream { client, credit_bytes: stream.credit_bytes() })?;
        let bytes_per_second = raw.stream(peer, stream, duration)?;
        self.stop(0)?;
        measured.raw =
            Some(if singles { bytes_per_second / packet_bytes as f64 / 1e6 } else { bytes_per_second / 1e9 });
        Ok(())
    }

    fn tags(&mut self, count: u64) -> Tag {
        let first = self.next_tag;
        self.next_tag += count;
        first
    }

    fn start(&mut self, round: Round) -> Result<(), String> {
        match self.control.ask(&Request::Start(round))? {
            Reply::Started => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    fn stop(&mut self, sent: u64) -> Result<Served, String> {
        match self.control.ask(&Request::Stop { sent })? {
            Reply::Stopped(served) => Ok(served),
            other => Err(unexpected(&other)),
        }
    }

    fn fill_peer(&mut self, first: Tag, count: u64) -> Result<(), String> {
        self.confirm(&Request::Fill { tags: (first..first + count).collect() })
    }

    fn check_peer(&mut self, first: Tag, count: u64) -> Result<(), String> {
        self.confirm(&Request::Check { tags: (first..first + count).collect() })
    }

    /// A failure of this end, with what the server has said about its own, which may have come first.
    fn with_last_words(&mut self, sentence: String) -> String {
        match self.control.last_words() {
            Some(words) => format!("{sentence}; the server says: {words}"),
            None => sentence,
        }
    }

    fn confirm(&mut self, request: &Request) -> Result<(), String> {
        match self.control.ask(request)? {
            Reply::Checked | Reply::Filled => Ok(()),
            other => Err(unexpected(&other)),
        }
    }
}

/// Measures plans one after the other, each with a session of its own, and reports each.
///
/// # Errors
/// A sentence.
pub(crate) fn measure(
    plans: &[Plan],
    settings: &EndSettings,
    connect: &dyn Fn() -> Result<TcpStream, String>,
    out: &mut dyn Write,
) -> Result<(), String> {
    let mut reporter = super::report::Reporter::new(settings.json);
    let unwritten = |error: std::io::Error| format!("the report cannot be written: {error}");
    for plan in plans {
        let mut session = Session::open(plan, connect()?, settings)?;
        let progress = super::report::progress(plan, settings.json);
        let report = session.run(&progress).map_err(|sentence| session.with_last_words(sentence))?;
        reporter.print(&report, out).map_err(unwritten)?;
    }
    reporter.finish(out).map_err(unwritten)
}
