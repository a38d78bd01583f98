//! `pumice sim`: HCAs on a simulated network in virtual time, with every byte checked.
//!
//! The simulation uses only integers and seeded choices, so a report is a function of its flags.

mod connection;
mod network;
pub(crate) mod options;
mod quantity;
mod report;

use std::io::Write;
use std::sync::Arc;

use pumice_device::addresses::gid_table::GidEntry;
use pumice_device::hca::{Hca, HcaConfig, HcaError};
use pumice_device::opening::{OpenError, Opening};
use pumice_device::world::World;
use pumice_transport::types::Mtu;

use crate::observe::ProgressDisplay;
use crate::outcome::{CommandError, CommandResult, Outcome};
use connection::{ConnectionTerms, SimConnection};
use network::SimNetwork;
use options::SimOptions;
use report::SimReport;

/// Virtual time after which a simulation is aborted, in ns.
const LIMIT_NS: u64 = 3_600_000_000_000;
/// Number of turns of all connections between two updates of the progress.
const TURNS_PER_PROGRESS_CHECK: u32 = 1024;

fn device(error: HcaError) -> CommandError {
    CommandError::Failed(format!("the simulated device refused: {error}"))
}

/// Runs the command. The exit code is 1 if a message arrived wrong or not at all.
pub(crate) fn run(options: &SimOptions, out: &mut dyn Write) -> CommandResult {
    let report = simulate(options)?;
    if options.json {
        report.print_json(out)?
    } else {
        report.print(options, out)?
    }
    Ok(if report.is_good() { Outcome::Good } else { Outcome::Bad })
}

fn simulate(options: &SimOptions) -> Result<SimReport, CommandError> {
    let Some(mtu) = Mtu::from_bytes(options.mtu) else {
        let sentence = "is no path MTU: choose 256, 512, 1024, 2048 or 4096";
        return Err(CommandError::Failed(format!("--mtu {} {sentence}", options.mtu)));
    };
    let network = SimNetwork::new(options)?;
    let mut world = World::new(network.fabric(options));
    let hcas = add_hcas(&mut world, &network, options)?;
    let terms =
        ConnectionTerms { operation: options.op, size: options.size, messages: options.messages, mtu };
    let mut connections = Vec::new();
    for k in 0..usize::from(options.qps) {
        let [from, to] = network.ends(options, k);
        if let (Some(from), Some(to)) = (hcas.get(from), hcas.get(to)) {
            let seed = options.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(k as u64);
            connections.push(SimConnection::new([from, to], terms, seed).map_err(device)?);
        }
    }
    let wanted = u64::from(options.qps) * u64::from(options.messages);
    let progress = ProgressDisplay::of(wanted, "messages");
    let (mut refused, mut turns) = (None, 0_u32);
    world.run_until(LIMIT_NS, || {
        turns = turns.wrapping_add(1);
        if turns.is_multiple_of(TURNS_PER_PROGRESS_CHECK) {
            progress.set_done(connections.iter().map(|connection| connection.completed).sum());
        }
        for connection in &mut connections {
            if let Err(error) = connection.turn() {
                refused = Some(error);
            }
        }
        refused.is_some() || connections.iter().all(SimConnection::is_done)
    });
    if let Some(error) = refused {
        return Err(device(error));
    }
    Ok(SimReport::new(&world, network.topology, &hcas, &connections, wanted))
}

fn add_hcas(
    world: &mut World,
    network: &SimNetwork,
    options: &SimOptions,
) -> Result<Vec<Arc<Hca>>, CommandError> {
    let mut hcas = Vec::new();
    for (k, address) in network.addresses.iter().enumerate() {
        let gid = GidEntry::new(*address, "sim", 0, Mtu::Mtu4096);
        let mut config = HcaConfig::new(&format!("pumice{k}"), vec![gid]);
        config.congestion = network.congestion(options, k)?;
        let mut opening = Opening::new(config);
        if let Some(path) = options.capture.as_deref().filter(|_| k == 0) {
            opening = opening.captured_to(path);
        }
        let hca = opening.in_world(world).map_err(|error| match (error, &options.capture) {
            (OpenError::Capture(error), Some(path)) => CommandError::Failed(format!(
                "the capture file {} cannot be written: {error}",
                path.display()
            )),
            (error, _) => CommandError::Failed(format!("the simulated device refused: {error}")),
        })?;
        hcas.push(hca);
    }
    Ok(hcas)
}
