//! The measuring end, and the plans that follow from options.

use std::io::{self, Write};
use std::net::TcpStream;

use indicatif::ProgressBar;
use pumice_device::settings::{Settings, Wire};
use pumice_perf::{Operation, Plan, Service, Session, SessionOptions};
use pumice_transport::types::Mtu;

use super::options::{EndSettings, OperationName, ServiceName, TestOptions, WireName};
use super::report::{Reporter, in_words, plan_in_words, progress};

const SECONDS_PER_ROUND: f64 = 0.25;

impl TestOptions {
    /// Returns the one test that the options describe, on each wire.
    ///
    /// # Errors
    /// A sentence that says which options contradict each other.
    pub(crate) fn described(&self, raw: bool, link_mtu: Option<u16>) -> Result<Vec<Plan>, String> {
        let wires = match self.wire {
            Some(wire) => wire.wires(),
            // Programs on libpumice.so share their UDP ports, and use the environment's settings.
            None if self.shared => {
                vec![Settings::from_environment().map_err(|error| error.to_string())?.wire]
            }
            None => vec![Wire::Udp],
        };
        wires.into_iter().map(|wire| self.plan(raw, wire, link_mtu)).collect()
    }

    /// Returns the one test that the options describe, on this wire.
    ///
    /// # Errors
    /// The same as for [`described`](TestOptions::described).
    fn plan(&self, raw: bool, wire: Wire, link_mtu: Option<u16>) -> Result<Plan, String> {
        let operation = self.op.map_or(Operation::Write, Operation::from);
        let service = Service::from(self.transport);
        let builder = match self.latency {
            true => Plan::latency(operation, service),
            false => Plan::throughput(operation, service),
        };
        let builder = builder
            .size_bytes(self.size)
            .mtu_bytes(self.mtu.or_else(|| link_mtu.map(default_mtu)))
            .qp_count(self.qps)
            .post_list(self.post_list)
            .depth(self.depth)
            .events(self.events)
            .passive(self.passive)
            .shared(self.shared)
            .wire(wire)
            .verify(self.verify)
            .raw(raw)
            .rounds(self.rounds, self.round_seconds());
        builder.build().map_err(|error| plan_in_words(&error))
    }

    /// Returns the tests of a loop: the one described, or the suite if none is. Namespaces have a `link_mtu`,
    /// and share no memory.
    ///
    /// # Errors
    /// The same as for [`described`](TestOptions::described).
    pub(crate) fn plans(&self, link_mtu: Option<u16>) -> Result<Vec<Plan>, String> {
        let described = self.op.is_some() || self.size.is_some() || self.latency || self.qps != 1;
        if described || self.transport != ServiceName::Rc {
            return self.described(true, link_mtu);
        }
        let suite = [
            (OperationName::Write, false, self.events),
            (OperationName::Read, false, self.events),
            (OperationName::Send, true, false),
            (OperationName::Send, true, true),
        ];
        let usual = if link_mtu.is_some() { WireName::Udp } else { WireName::Both };
        let wires = self.wire.unwrap_or(usual).wires();
        let test = |wire, (op, latency, events)| {
            TestOptions { op: Some(op), latency, events, ..self.clone() }.plan(true, wire, link_mtu)
        };
        wires.into_iter().flat_map(|wire| suite.map(|of| test(wire, of))).collect()
    }

    /// Returns the length of one round, in seconds.
    pub(crate) fn round_seconds(&self) -> f64 {
        self.duration.map_or(SECONDS_PER_ROUND, |seconds| seconds / self.rounds.max(1) as f64)
    }
}

/// Returns the largest path MTU that a link carries, with room for all headers.
fn default_mtu(link_mtu: u16) -> usize {
    Mtu::largest_for_link(u32::from(link_mtu)).map_or(256, Mtu::bytes)
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

/// Opens a session with a device that has these settings.
///
/// # Errors
/// A sentence.
pub(crate) fn open(
    plan: &Plan,
    stream: TcpStream,
    settings: &EndSettings,
    second_core: Option<usize>,
) -> Result<Session, String> {
    let (address, capture) = (settings.addr, settings.capture.clone());
    let options = SessionOptions { address, capture, second_core };
    Session::open(plan, stream, &options).map_err(|error| in_words(&error))
}

/// Measures plans one after the other, each with a session of its own, and reports each. `second_core` is the
/// core of the second thread of yardsticks.
///
/// # Errors
/// A sentence.
pub(crate) fn measure(
    plans: &[Plan],
    settings: &EndSettings,
    second_core: Option<usize>,
    connect: &dyn Fn() -> Result<TcpStream, String>,
    out: &mut dyn Write,
) -> Result<(), String> {
    let mut reporter = Reporter::new(settings.json);
    let unwritten = |error: io::Error| format!("the report cannot be written: {error}");
    for plan in plans {
        let mut session = open(plan, connect()?, settings, second_core)?;
        let bar = progress(plan, settings.json);
        let report = session.run(&mut after_round(plan, &bar)).map_err(|error| in_words(&error))?;
        reporter.print(&report, out).map_err(unwritten)?;
    }
    reporter.finish(out).map_err(unwritten)
}

/// Advances the bar, and removes it after the last round.
pub(crate) fn after_round<'a>(plan: &Plan, bar: &'a ProgressBar) -> impl FnMut(usize) + 'a {
    let rounds = plan.rounds;
    move |done| {
        bar.inc(1);
        if done == rounds {
            bar.finish_and_clear();
        }
    }
}
