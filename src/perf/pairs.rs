//! Pairs of processes that exchange messages at the same time.

use std::io::{self, BufRead, Write};
use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::time::Duration;

use pumice_perf::pairs::{self, ExchangingPair, PairsReport};
use pumice_perf::{MeasuredQuantity, Plan};
use serde::{Deserialize, Serialize};

use super::measure::{after_round, open};
use super::options::{EndSettings, LoopOptions, OperationName};
use super::process::{EndTask, Listening, OutputReader, PerfEnd};
use super::report::{EMULATED, in_words, progress};
use crate::outcome::Outcome;

/// An order to an exchanging end: exchange messages for this time.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct ExchangeOrder {
    seconds: f64,
}

/// The answer of an exchanging end.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct ExchangeResult {
    round_trips_per_second: f64,
}

impl ExchangingPair for PerfEnd {
    type Error = String;

    fn begin(&mut self, seconds: f64) -> Result<(), String> {
        self.send_message(&ExchangeOrder { seconds })
    }

    fn finish(&mut self) -> Result<f64, String> {
        self.read_message::<ExchangeResult>().map(|did| did.round_trips_per_second)
    }
}

/// Pairs of processes that exchange messages on order, each pair on two addresses.
#[derive(Debug)]
pub(super) struct ProcessPairs {
    clients: Vec<PerfEnd>,
    /// Servers, which run as long as this value lives.
    _servers: Vec<PerfEnd>,
}

impl ProcessPairs {
    /// Starts `count` pairs, with addresses from `base` on, for messages of this plan.
    ///
    /// # Errors
    /// A sentence.
    pub(super) fn start(count: u16, base: Ipv4Addr, plan: &Plan) -> Result<ProcessPairs, String> {
        let (mut servers, mut clients) = (Vec::new(), Vec::new());
        for pair in 0..u32::from(count) {
            let [own, peer] = [0, 1].map(|end| IpAddr::V4(Ipv4Addr::from(u32::from(base) + 2 * pair + end)));
            let mut server =
                PerfEnd::start(&EndTask::Serve { address: peer, core: None }, &[], OutputReader::Parent)?;
            let Listening { at } = server.read_message()?;
            servers.push(server);
            let settings = EndSettings { addr: Some(own), ..EndSettings::default() };
            let task = EndTask::Exchange { server: at, plan: plan.clone(), settings };
            clients.push(PerfEnd::start(&task, &[], OutputReader::Parent)?);
        }
        Ok(ProcessPairs { clients, _servers: servers })
    }

    /// Exchanges messages in the rounds of `plan`: all pairs, alternately with the first pair alone.
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

/// Returns the first address of the pairs.
///
/// # Errors
/// A sentence: `requested` is no IPv4 address of the loopback interface.
pub(super) fn first_address(requested: Option<IpAddr>) -> Result<Ipv4Addr, String> {
    match requested.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)) {
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

/// Measures `count` pairs of processes, from this address on, by one plan.
fn measure(count: u16, base: Ipv4Addr, plan: &Plan, json: bool, out: &mut dyn Write) -> Result<(), String> {
    let mut pairs = ProcessPairs::start(count, base, plan)?;
    let bar = progress(plan, json);
    let report = pairs.compare(plan, &mut after_round(plan, &bar))?;
    if json { write_message(&report, out) } else { print(&report, plan, out).map_err(unwritten) }
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

/// Runs the client of one pair: a round for each order, until standard input ends.
///
/// # Errors
/// A sentence.
pub(crate) fn exchange(
    stream: TcpStream,
    plan: &Plan,
    settings: &EndSettings,
    out: &mut dyn Write,
) -> Result<(), String> {
    debug_assert_eq!(plan.quantity, MeasuredQuantity::Latency);
    let mut session = open(plan, stream, settings, None)?;
    for line in io::stdin().lock().lines() {
        let line = line.map_err(|error| format!("standard input failed: {error}"))?;
        let go: ExchangeOrder = serde_json::from_str(&line).map_err(|error| error.to_string())?;
        let duration = Duration::try_from_secs_f64(go.seconds).map_err(|error| error.to_string())?;
        let round_trips_per_second = session.exchange(duration).map_err(|error| in_words(&error))?;
        write_message(&ExchangeResult { round_trips_per_second }, out)?;
    }
    Ok(())
}

/// Writes one line of JSON.
///
/// # Errors
/// A sentence.
pub(crate) fn write_message<T: Serialize>(message: &T, out: &mut dyn Write) -> Result<(), String> {
    let line = serde_json::to_string(message).map_err(|error| error.to_string())?;
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(unwritten)
}

#[allow(clippy::needless_pass_by_value, reason = "fits map_err")]
fn unwritten(error: io::Error) -> String {
    format!("the report cannot be written: {error}")
}
