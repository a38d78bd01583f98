//! The row of connections by address: one process accepts, and one requests connections.

use std::io::{self, BufRead, Write};
use std::net::IpAddr;
use std::time::Duration;

use pumice_perf::connections::{Acceptor, AcceptorAddresses, ConnectionRates, Connector};
use pumice_perf::machine;
use serde::{Deserialize, Serialize};

use super::figure::{Figure, RoundFigures};
use super::process::{EndTask, PerfEnd, write_message};
use super::source::{FigureSource, Unmeasured};

/// The results of the requesting end in a round.
#[derive(Debug, Serialize, Deserialize)]
struct ConnectionFigures {
    queue_pairs: ConnectionRates,
    tcp: ConnectionRates,
}

/// Both ends.
#[derive(Debug)]
pub(super) struct Connections {
    connecting: PerfEnd,
    /// Accepting end, which runs as long as this value lives.
    _accepting: PerfEnd,
}

impl Connections {
    pub(super) fn start([own, peer]: [IpAddr; 2]) -> Result<Connections, Unmeasured> {
        let [own_core, peer_core] = machine::two();
        let mut accepting = PerfEnd::start(&EndTask::Accept { address: peer, core: peer_core })?;
        let to: AcceptorAddresses = accepting.read_message()?;
        let connecting = PerfEnd::start(&EndTask::Connect { address: own, to, core: own_core })?;
        Ok(Connections { connecting, _accepting: accepting })
    }
}

impl FigureSource for Connections {
    fn round(&mut self, seconds: f64) -> Result<RoundFigures, Unmeasured> {
        self.connecting.send_message(&seconds)?;
        let ConnectionFigures { queue_pairs, tcp } = self.connecting.read_message()?;
        Ok(RoundFigures::from([
            (Figure::PerSecond, queue_pairs.per_second),
            (Figure::Value, queue_pairs.p50_ms),
            (Figure::P99, queue_pairs.p99_ms),
            (Figure::Tcp, tcp.p50_ms),
        ]))
    }
}

/// Runs the accepting end, which prints where it accepts. Returns the reason why it can no longer accept.
pub(super) fn accept(address: IpAddr, out: &mut dyn Write) -> String {
    let bound = Acceptor::bind(address).map_err(|error| error.to_string());
    match bound.and_then(|acceptor| write_message(&acceptor.at(), out).map(|()| acceptor)) {
        Ok(acceptor) => match acceptor.serve() {
            Err(error) => error.to_string(),
        },
        Err(sentence) => sentence,
    }
}

/// Runs the requesting end: a round for each order with a number of seconds, until standard input ends.
///
/// # Errors
/// A sentence.
pub(super) fn connect(address: IpAddr, to: AcceptorAddresses, out: &mut dyn Write) -> Result<(), String> {
    let mut connector = Connector::open(address, to).map_err(|error| error.to_string())?;
    for line in io::stdin().lock().lines() {
        let line = line.map_err(|error| format!("standard input failed: {error}"))?;
        let seconds: f64 = serde_json::from_str(&line).map_err(|error| error.to_string())?;
        let duration = Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())?;
        let queue_pairs = connector.queue_pairs(duration).map_err(|error| error.to_string())?;
        let tcp = connector.tcp(duration).map_err(|error| error.to_string())?;
        write_message(&ConnectionFigures { queue_pairs, tcp }, out)?;
    }
    Ok(())
}
