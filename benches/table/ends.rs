//! Rows that two ends measure, each a process: the measuring end receives a plan for each
//! round.

use std::io::{self, BufRead, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::process::Command;

use pumice_device::settings::Wire;
use pumice_perf::{Plan, PlanBuilder, Session, SessionOptions, machine};
use serde::{Deserialize, Serialize};

use super::figure::{Figure, RoundFigures};
use super::process::{EndTask, Listening, PerfEnd, write_message};
use super::programs::PUMICE;
use super::source::{FigureSource, Unmeasured};

/// Maximum number of pairs of processes.
const MAX_PAIRS: usize = 64;

/// The order to the measuring end in a round.
#[derive(Debug, Serialize, Deserialize)]
struct RoundOrder {
    plan: Plan,
    /// Number of messages, the first ones of a new connection; `None` for a whole round.
    first: Option<u64>,
}

/// The results of the measuring end.
#[derive(Debug, Serialize, Deserialize)]
struct EndFigures {
    value: f64,
    p99: Option<f64>,
    yardstick: Option<String>,
    raw: Option<f64>,
    raw_p99: Option<f64>,
    ratio_one_qp: Option<f64>,
    /// Reason why packets went by UDP where shared memory was requested.
    by_udp: Option<String>,
}

/// Two processes, of which one measures against the other.
#[derive(Debug)]
pub(super) struct EndPair {
    measuring: PerfEnd,
    /// Serving end, which runs as long as this value lives.
    _serving: PerfEnd,
}

impl EndPair {
    pub(super) fn start([own, peer]: [IpAddr; 2]) -> Result<EndPair, Unmeasured> {
        let [own_core, peer_core] = machine::two();
        let mut serving = PerfEnd::start(&EndTask::Serve { address: peer, core: peer_core })?;
        let Listening { at } = serving.read_message()?;
        let rounds = EndTask::Rounds { server: at, address: own, cores: [own_core, peer_core] };
        Ok(EndPair { measuring: PerfEnd::start(&rounds)?, _serving: serving })
    }

    fn request_round(&mut self, plan: PlanBuilder, first: Option<u64>) -> Result<EndFigures, Unmeasured> {
        let plan = plan.build().map_err(|error| error.to_string())?;
        self.measuring.send_message(&RoundOrder { plan, first })?;
        let found: EndFigures = self.measuring.read_message()?;
        match found.by_udp {
            Some(reason) => Err(Unmeasured::Unavailable(format!("packets went by UDP because {reason}"))),
            None => Ok(found),
        }
    }
}

/// A row with one plan.
#[derive(Debug)]
pub(super) struct OnePlan {
    pub(super) ends: EndPair,
    pub(super) plan: fn() -> PlanBuilder,
    pub(super) factor: f64,
}

impl FigureSource for OnePlan {
    fn round(&mut self, seconds: f64) -> Result<RoundFigures, Unmeasured> {
        let found = self.ends.request_round((self.plan)().raw(true).rounds(1, seconds), None)?;
        let mut round = RoundFigures::from([(Figure::Value, found.value * self.factor)]);
        let yardstick = found.yardstick.as_deref().and_then(Figure::of_yardstick);
        let one_qp = found.ratio_one_qp.filter(|ratio| *ratio > 0.0).map(|ratio| found.value / ratio);
        let more = [
            (Some(Figure::P99), found.p99),
            (yardstick, found.raw),
            (Some(Figure::YardstickP99), found.raw_p99),
            (Some(Figure::OneQueuePair), one_qp),
        ];
        for (figure, value) in more {
            if let (Some(figure), Some(value)) = (figure, value) {
                round.insert(figure, value * self.factor);
            }
        }
        Ok(round)
    }
}

/// A row with the first messages of a connection, a new one in each round.
#[derive(Debug)]
pub(super) struct FirstMessages {
    pub(super) ends: EndPair,
    pub(super) plan: fn() -> PlanBuilder,
    pub(super) messages: u64,
}

impl FigureSource for FirstMessages {
    fn round(&mut self, seconds: f64) -> Result<RoundFigures, Unmeasured> {
        let found = self.ends.request_round((self.plan)().rounds(1, seconds), Some(self.messages))?;
        let p99 = found.p99.ok_or_else(|| "the measuring end has no p99".to_owned())?;
        Ok(RoundFigures::from([(Figure::Value, found.value), (Figure::P99, p99)]))
    }
}

/// A row with one plan and messages of several sizes.
#[derive(Debug)]
pub(super) struct MessageSizes {
    pub(super) ends: EndPair,
    pub(super) plan: fn() -> PlanBuilder,
    pub(super) sizes_bytes: &'static [usize],
}

impl FigureSource for MessageSizes {
    fn round(&mut self, seconds: f64) -> Result<RoundFigures, Unmeasured> {
        let (mut slowest, mut fastest) = (f64::INFINITY, 0.0_f64);
        for size_bytes in self.sizes_bytes {
            let found =
                self.ends.request_round((self.plan)().size_bytes(*size_bytes).rounds(1, seconds), None)?;
            (slowest, fastest) = (slowest.min(found.value), fastest.max(found.value));
        }
        Ok(RoundFigures::from([(Figure::Value, slowest / fastest.max(f64::MIN_POSITIVE))]))
    }
}

/// A row with several pairs of ends at the same time, which `pumice perf loop --pairs` runs.
#[derive(Debug)]
pub(super) struct ManyPairs {
    address: IpAddr,
    count: usize,
}

impl ManyPairs {
    /// Makes as many pairs as there are processors for, with addresses from this one on.
    pub(super) fn new(address: IpAddr) -> Result<ManyPairs, Unmeasured> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let count = (processors / 2).min(MAX_PAIRS);
        if count < 2 {
            return Err(Unmeasured::Unavailable(format!(
                "two pairs of ends that poll need 4 processors, and this process may use {processors}"
            )));
        }
        Ok(ManyPairs { address, count })
    }
}

impl FigureSource for ManyPairs {
    fn round(&mut self, seconds: f64) -> Result<RoundFigures, Unmeasured> {
        let (address, count) = (self.address.to_string(), self.count.to_string());
        let mut command = Command::new(PUMICE);
        command.args(["perf", "loop", "--json", "--wire", "auto", "--rounds", "1", "--pairs", &count]);
        command.args(["--addr", &address, "--for", &seconds.to_string()]);
        let output = command.output().map_err(|error| format!("{PUMICE} cannot be started: {error}"))?;
        let report: serde_json::Value = serde_json::from_slice(&output.stdout)
            .map_err(|_| String::from_utf8_lossy(&output.stderr).trim().to_owned())?;
        let ratio = report["ratio_one_pair"].as_f64().ok_or_else(|| format!("no ratio in {report}"))?;
        Ok(RoundFigures::from([(Figure::Value, ratio / self.count as f64)]))
    }
}

/// Runs the measuring end: a round for each order, until standard input ends. The session of a plan stays
/// open as long as rounds of that plan follow each other.
///
/// # Errors
/// A sentence.
pub(super) fn measure_rounds(
    server: SocketAddr,
    address: IpAddr,
    second_core: Option<usize>,
    out: &mut dyn Write,
) -> Result<(), String> {
    let mut open_session: Option<(Plan, Session)> = None;
    for line in io::stdin().lock().lines() {
        let line = line.map_err(|error| format!("standard input failed: {error}"))?;
        let RoundOrder { plan, first } = serde_json::from_str(&line).map_err(|error| error.to_string())?;
        let reusable_session = open_session.take().filter(|(of, _)| *of == plan && first.is_none());
        let mut session = match reusable_session {
            Some((_, session)) => session,
            None => {
                let connected = TcpStream::connect(server);
                let stream =
                    connected.map_err(|error| format!("the other process cannot be reached: {error}"))?;
                open(&plan, stream, address, second_core)?
            }
        };
        let found = match first {
            Some(count) => first_messages(&mut session, count),
            None => one_round(&plan, &mut session),
        };
        write_message(&found?, out)?;
        open_session = Some((plan, session));
    }
    Ok(())
}

fn open(
    plan: &Plan,
    stream: TcpStream,
    address: IpAddr,
    second_core: Option<usize>,
) -> Result<Session, String> {
    let options = SessionOptions { address: Some(address), capture: None, second_core };
    Session::open(plan, stream, &options).map_err(|error| error.to_string())
}

fn first_messages(session: &mut Session, count: u64) -> Result<EndFigures, String> {
    let times = session.first_messages(count).map_err(|error| error.to_string())?;
    let (yardstick, raw, raw_p99) = (None, None, None);
    let (value, p99) = (times.p50, Some(times.p99));
    Ok(EndFigures { value, p99, yardstick, raw, raw_p99, ratio_one_qp: None, by_udp: None })
}

fn one_round(plan: &Plan, session: &mut Session) -> Result<EndFigures, String> {
    let report = session.run(&mut |_| ()).map_err(|error| error.to_string())?;
    let elsewhere = plan.wire == Wire::Auto && report.medium.as_deref() != Some("shared memory");
    let why = || report.medium_reason.clone().unwrap_or_else(|| "the device does not say why".to_owned());
    Ok(EndFigures {
        value: report.value,
        p99: report.p99,
        yardstick: report.yardstick.map(str::to_owned),
        raw: report.raw,
        raw_p99: report.raw_p99,
        ratio_one_qp: report.ratio_one_qp,
        by_udp: elsewhere.then(why),
    })
}
