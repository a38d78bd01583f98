//! Several pairs of processes that exchange messages at the same time.

use std::io::{self, BufRead, Write};
use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::time::Duration;

use pumice_perf::pairs::{self, Pair, PairsReport};
use pumice_perf::{Plan, Quantity};
use serde::{Deserialize, Serialize};

use super::measure::{after_round, open};
use super::options::{EndSettings, LoopOptions, OperationName};
use super::process::{Listening, PerfEnd, Reader, Task};
use super::report::{EMULATED, progress};
use super::wording::in_words;
use crate::outcome::Outcome;

/// What an exchanging end is told.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Go {
    seconds: f64,
}

/// What it answers.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Exchanged {
    round_trips_per_second: f64,
}

impl Pair for PerfEnd {
    type Error = String;

    fn begin(&mut self, seconds: f64) -> Result<(), String> {
        self.tell(&Go { seconds })
    }

    fn finish(&mut self) -> Result<f64, String> {
        self.answer::<Exchanged>().map(|did| did.round_trips_per_second)
    }
}

/// Pairs of processes at most.
pub(super) const MOST: u16 = 64;

/// Pairs of processes that exchange messages when they are told, each pair on two addresses.
#[derive(Debug)]
pub(super) struct Pairs {
    clients: Vec<PerfEnd>,
    /// They serve as long as this lives.
    _servers: Vec<PerfEnd>,
}

impl Pairs {
    /// Starts `count` pairs, with addresses from `base` on, for messages of this plan.
    ///
    /// # Errors
    /// A sentence.
    pub(super) fn start(count: u16, base: Ipv4Addr, plan: &Plan) -> Result<Pairs, String> {
        let (mut servers, mut clients) = (Vec::new(), Vec::new());
        for pair in 0..u32::from(count) {
            let [own, peer] = [0, 1].map(|end| IpAddr::V4(Ipv4Addr::from(u32::from(base) + 2 * pair + end)));
            let mut server = PerfEnd::start(&Task::Serve { address: peer, core: None }, &[], Reader::Parent)?;
            let Listening { at } = server.answer()?;
            servers.push(server);
            let settings = EndSettings { addr: Some(own), ..EndSettings::default() };
            let task = Task::Exchange { server: at, plan: plan.clone(), settings };
            clients.push(PerfEnd::start(&task, &[], Reader::Parent)?);
        }
        Ok(Pairs { clients, _servers: servers })
    }

    /// Lets them exchange messages in the rounds of `plan`, alternately with the first pair alone.
    ///
    /// # Errors
    /// A sentence.
    pub(super) fn compare(
        &mut self,
        plan: &Plan,
        after_round: &mut dyn FnMut(usize),
    ) -> Result<PairsReport, String> {
        pairs::compare(plan, &mut self.clients, after_round)
    }
}

/// The address from which on pairs have theirs.
///
/// # Errors
/// A sentence: it is no IPv4 address of the loopback interface.
pub(super) fn first_address(told: Option<IpAddr>) -> Result<Ipv4Addr, String> {
    match told.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)) {
        IpAddr::V4(base) if base.is_loopback() => Ok(base),
        other => Err(format!("pairs need IPv4 loopback addresses, from --addr on; {other} is none")),
    }
}

/// Runs `count` pairs, alternately with one of them alone.
///
/// # Errors
/// A sentence.
pub(crate) fn run(count: u16, options: &LoopOptions, out: &mut dyn Write) -> Result<Outcome, String> {
    if options.netns {
        return Err("pairs run on loopback addresses: leave out --netns or --pairs".to_owned());
    }
    let mut test = options.test.clone();
    test.op.get_or_insert(OperationName::Send);
    test.latency = true;
    let plans = test.described(false, None)?;
    let base = first_address(options.end.addr)?;
    plans.iter().try_for_each(|plan| measure(count, base, plan, options.end.json, out))?;
    Ok(Outcome::Good)
}

/// Pairs of processes from this address on, for one plan.
fn measure(count: u16, base: Ipv4Addr, plan: &Plan, json: bool, out: &mut dyn Write) -> Result<(), String> {
    let mut pairs = Pairs::start(count, base, plan)?;
    let bar = progress(plan, json);
    let report = pairs.compare(plan, &mut after_round(plan, &bar))?;
    if json { say(&report, out) } else { print(&report, plan, out).map_err(unwritten) }
}

fn print(report: &PairsReport, plan: &Plan, out: &mut dyn Write) -> io::Result<()> {
    if report.emulated {
        writeln!(out, "{EMULATED}")?;
    }
    writeln!(
        out,
        "{}, --wire {}: {} pairs of processes exchange {} B: {:.0} round trips/s in all, {:.2} times those \
        of one pair alone ({:.0}/s)",
        report.test,
        report.wire.name(),
        report.pairs,
        plan.size_bytes,
        report.value,
        report.ratio_one_pair,
        report.one_pair
    )
}

/// The client of one pair: a round whenever told, until standard input ends.
///
/// # Errors
/// A sentence.
pub(crate) fn exchange(
    stream: TcpStream,
    plan: &Plan,
    settings: &EndSettings,
    out: &mut dyn Write,
) -> Result<(), String> {
    debug_assert_eq!(plan.quantity, Quantity::Latency);
    let mut session = open(plan, stream, settings, None)?;
    for line in io::stdin().lock().lines() {
        let line = line.map_err(|error| format!("standard input failed: {error}"))?;
        let go: Go = serde_json::from_str(&line).map_err(|error| error.to_string())?;
        let duration = Duration::try_from_secs_f64(go.seconds).map_err(|error| error.to_string())?;
        let round_trips_per_second = session.exchange(duration).map_err(|error| in_words(&error))?;
        say(&Exchanged { round_trips_per_second }, out)?;
    }
    Ok(())
}

/// Writes one line of JSON.
///
/// # Errors
/// A sentence.
pub(crate) fn say<T: Serialize>(message: &T, out: &mut dyn Write) -> Result<(), String> {
    let line = serde_json::to_string(message).map_err(|error| error.to_string())?;
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(unwritten)
}

#[allow(clippy::needless_pass_by_value, reason = "fits map_err")]
fn unwritten(error: io::Error) -> String {
    format!("the report cannot be written: {error}")
}
