//! The row of connections by address: two processes, of which one accepts and one asks.

use std::io::{self, BufRead, Write};
use std::net::IpAddr;
use std::time::Duration;

use pumice_perf::connections::{Acceptor, AcceptsAt, Connected, Connector};
use pumice_perf::cores;
use serde::{Deserialize, Serialize};

use super::figure::{Figure, Round};
use super::source::{Source, Unmeasured};
use crate::perf::pairs::say;
use crate::perf::process::{PerfEnd, Reader, Task};
use crate::perf::wording::in_words;

/// What the asking end found in a round.
#[derive(Debug, Serialize, Deserialize)]
struct Found {
    queue_pairs: Connected,
    tcp: Connected,
}

/// Both ends.
#[derive(Debug)]
pub(super) struct Connections {
    asking: PerfEnd,
    /// Accepts as long as this lives.
    _accepting: PerfEnd,
}

impl Connections {
    pub(super) fn start([own, peer]: [IpAddr; 2]) -> Result<Connections, Unmeasured> {
        let [own_core, peer_core] = cores::two();
        let mut accepting =
            PerfEnd::start(&Task::Accept { address: peer, core: peer_core }, &[], Reader::Parent)?;
        let to: AcceptsAt = accepting.answer()?;
        let asking =
            PerfEnd::start(&Task::Connect { address: own, to, core: own_core }, &[], Reader::Parent)?;
        Ok(Connections { asking, _accepting: accepting })
    }
}

impl Source for Connections {
    fn round(&mut self, seconds: f64) -> Result<Round, Unmeasured> {
        self.asking.tell(&seconds)?;
        let Found { queue_pairs, tcp } = self.asking.answer()?;
        Ok(Round::from([
            (Figure::PerSecond, queue_pairs.per_second),
            (Figure::Value, queue_pairs.p50_ms),
            (Figure::P99, queue_pairs.p99_ms),
            (Figure::Tcp, tcp.p50_ms),
        ]))
    }
}

/// The accepting end: says where it accepts. Returns why it cannot any more.
pub(in crate::perf) fn accept(address: IpAddr, out: &mut dyn Write) -> String {
    let bound = Acceptor::bind(address).map_err(|error| in_words(&error));
    match bound.and_then(|acceptor| say(&acceptor.at(), out).map(|()| acceptor)) {
        Ok(acceptor) => match acceptor.serve() {
            Err(error) => in_words(&error),
        },
        Err(sentence) => sentence,
    }
}

/// The asking end: a round whenever told for how many seconds, until standard input ends.
///
/// # Errors
/// A sentence.
pub(in crate::perf) fn connect(address: IpAddr, to: AcceptsAt, out: &mut dyn Write) -> Result<(), String> {
    let mut connector = Connector::open(address, to).map_err(|error| in_words(&error))?;
    for line in io::stdin().lock().lines() {
        let line = line.map_err(|error| format!("standard input failed: {error}"))?;
        let seconds: f64 = serde_json::from_str(&line).map_err(|error| error.to_string())?;
        let duration = Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())?;
        let queue_pairs = connector.queue_pairs(duration).map_err(|error| in_words(&error))?;
        let tcp = connector.tcp(duration).map_err(|error| in_words(&error))?;
        say(&Found { queue_pairs, tcp }, out)?;
    }
    Ok(())
}
