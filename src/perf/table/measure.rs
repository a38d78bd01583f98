//! Measures one row: what it is about and its peers in turns, round after round.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::connecting::Connections;
use super::ends::{Ends, First, ManyPairs, OnePlan, Sizes};
use super::figure::{Figure, Round};
use super::programs::{UcxAlone, UcxOnPumice, UnderInstrument};
use super::rows::{Row, Work};
use super::source::{Source, Unmeasured};

/// How long is looked before a row whether the machine does other work.
pub(super) const QUIET_LOOK: Duration = Duration::from_millis(200);

/// A row begins no further round after this time, so that all rows take five minutes on a busy machine, too.
const LONGEST_ROW: Duration = Duration::from_secs(15);
/// Nor before so many times the length of its rounds, of which yardsticks and peers take a part.
const PARTS_OF_A_ROUND: f64 = 4.0;

/// The rounds of a row.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) rounds: Vec<Round>,
    /// Why the row has no figures, or not all rounds.
    pub(super) unmeasured: Option<Unmeasured>,
    /// Why a peer has none.
    pub(super) peers_unmeasured: BTreeMap<Figure, String>,
}

impl Measured {
    /// Whether something went wrong with what the row is about.
    pub(super) fn has_failed(&self) -> bool {
        matches!(self.unmeasured, Some(Unmeasured::Failed(_)))
    }
}

/// Measures a row between devices of these addresses.
pub(super) fn measure(row: &'static Row, addresses: [IpAddr; 2], rounds: usize, seconds: f64) -> Measured {
    let begun = Instant::now();
    let longest = LONGEST_ROW.as_secs_f64().max(PARTS_OF_A_ROUND * rounds as f64 * seconds);
    let mut measured = Measured { rounds: Vec::new(), unmeasured: None, peers_unmeasured: BTreeMap::new() };
    let mut own = match start(&row.work, addresses) {
        Ok(own) => own,
        Err(unmeasured) => return Measured { unmeasured: Some(unmeasured), ..measured },
    };
    let mut peers = Vec::new();
    for peer in row.peers {
        match UcxAlone::find(peer) {
            Ok(found) => peers.push((peer.figure, found)),
            Err(why) => drop(measured.peers_unmeasured.insert(peer.figure, why.reason().to_owned())),
        }
    }
    for _ in 0..rounds {
        let mut round = match own.round(seconds) {
            Ok(round) => round,
            Err(unmeasured) => return Measured { unmeasured: Some(unmeasured), ..measured },
        };
        // A peer that fails is left out of the rounds that follow; the row is measured without it.
        peers.retain_mut(|(figure, peer)| match peer.round(seconds) {
            Ok(figures) => {
                round.extend(figures);
                true
            }
            Err(why) => {
                measured.peers_unmeasured.insert(*figure, why.reason().to_owned());
                false
            }
        });
        measured.rounds.push(round);
        if begun.elapsed().as_secs_f64() > longest {
            break;
        }
    }
    measured
}

fn start(work: &Work, addresses: [IpAddr; 2]) -> Result<Box<dyn Source>, Unmeasured> {
    let [own, _] = addresses;
    Ok(match *work {
        Work::Ends { plan, factor } => Box::new(OnePlan { ends: Ends::start(addresses)?, plan, factor }),
        Work::First { plan, messages } => Box::new(First { ends: Ends::start(addresses)?, plan, messages }),
        Work::Sizes { plan, sizes_bytes } => {
            Box::new(Sizes { ends: Ends::start(addresses)?, plan, sizes_bytes })
        }
        Work::Pairs { plan } => Box::new(ManyPairs::start(own, plan)?),
        Work::Ucx { test, messages } => Box::new(UcxOnPumice::find(addresses, test, messages)?),
        Work::Under(instrument) => Box::new(UnderInstrument::find(addresses, instrument)?),
        Work::Connections => Box::new(Connections::start(addresses)?),
    })
}
