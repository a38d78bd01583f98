//! Measures one row: its subject and its peers in turns, round after round.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::connecting::Connections;
use super::ends::{EndPair, FirstMessages, ManyPairs, MessageSizes, OnePlan};
use super::figure::{Figure, RoundFigures};
use super::programs::{UcxOnPumice, UcxWithoutPumice, WithInstrument};
use super::rows::{PerfRow, RowWork};
use super::source::{FigureSource, Unmeasured};

/// Time before a row during which the machine's idle share is measured.
pub(super) const IDLE_SAMPLE_TIME: Duration = Duration::from_millis(200);

/// Maximum duration of a row: after it no further round begins, so that all rows take at most five minutes
/// even on a busy machine.
const MAX_ROW: Duration = Duration::from_secs(15);
/// Minimum duration of a row as a multiple of the length of its rounds, of which yardsticks and peers take a
/// part.
const PARTS_OF_A_ROUND: f64 = 4.0;

/// The rounds of a row.
#[derive(Debug)]
pub(super) struct MeasuredRow {
    pub(super) rounds: Vec<RoundFigures>,
    /// Reason why the row has no figures, or not all rounds.
    pub(super) unmeasured: Option<Unmeasured>,
    /// Reasons why peers have no figures.
    pub(super) peers_unmeasured: BTreeMap<Figure, String>,
}

impl MeasuredRow {
    /// Reports whether the measurement of the row's subject failed.
    pub(super) fn has_failed(&self) -> bool {
        matches!(self.unmeasured, Some(Unmeasured::Failed(_)))
    }
}

/// Measures a row between devices of these addresses.
pub(super) fn measure(
    row: &'static PerfRow,
    addresses: [IpAddr; 2],
    rounds: usize,
    seconds: f64,
) -> MeasuredRow {
    let begun = Instant::now();
    let longest = MAX_ROW.as_secs_f64().max(PARTS_OF_A_ROUND * rounds as f64 * seconds);
    let mut measured =
        MeasuredRow { rounds: Vec::new(), unmeasured: None, peers_unmeasured: BTreeMap::new() };
    let mut own = match start(&row.work, addresses) {
        Ok(own) => own,
        Err(unmeasured) => return MeasuredRow { unmeasured: Some(unmeasured), ..measured },
    };
    let mut peers = Vec::new();
    for peer in row.peers {
        match UcxWithoutPumice::find(peer) {
            Ok(found) => peers.push((peer.figure, found)),
            Err(why) => drop(measured.peers_unmeasured.insert(peer.figure, why.reason().to_owned())),
        }
    }
    for _ in 0..rounds {
        let mut round = match own.round(seconds) {
            Ok(round) => round,
            Err(unmeasured) => return MeasuredRow { unmeasured: Some(unmeasured), ..measured },
        };
        // A peer that fails is left out of the following rounds; the row is measured without it.
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

fn start(work: &RowWork, addresses: [IpAddr; 2]) -> Result<Box<dyn FigureSource>, Unmeasured> {
    let [own, _] = addresses;
    Ok(match *work {
        RowWork::EndPair { plan, factor } => {
            Box::new(OnePlan { ends: EndPair::start(addresses)?, plan, factor })
        }
        RowWork::FirstMessages { plan, messages } => {
            Box::new(FirstMessages { ends: EndPair::start(addresses)?, plan, messages })
        }
        RowWork::MessageSizes { plan, sizes_bytes } => {
            Box::new(MessageSizes { ends: EndPair::start(addresses)?, plan, sizes_bytes })
        }
        RowWork::Pairs => Box::new(ManyPairs::new(own)?),
        RowWork::Ucx { test, messages } => Box::new(UcxOnPumice::find(addresses, test, messages)?),
        RowWork::Under(instrument) => Box::new(WithInstrument::find(addresses, instrument)?),
        RowWork::Connections => Box::new(Connections::start(addresses)?),
    })
}
