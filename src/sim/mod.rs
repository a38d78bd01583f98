//! `pumice sim`: HCAs on a simulated network in virtual time, every byte checked.
//!
//! The simulation is integers and seeded choices only, so a report is a function of its flags.

mod connection;
pub(crate) mod options;
mod quantity;
mod report;

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use pumice_device::addresses::gid_table::GidEntry;
use pumice_device::faults::{Fault, WirePlan};
use pumice_device::hca::{Hca, HcaConfig, HcaError};
use pumice_device::opening::{OpenError, Opening};
use pumice_device::port::FabricConfig;
use pumice_device::world::World;
use pumice_transport::types::Mtu;

use crate::observe::Progress;
use crate::outcome::{CommandError, CommandResult, Outcome};
use connection::{Connection, Terms};
use options::SimOptions;
use report::Report;

/// Virtual time after which a simulation is given up.
const LIMIT_NS: u64 = 3_600_000_000_000;
/// Turns of all connections between two looks at how much is done.
const TURNS_PER_LOOK: u32 = 1024;

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

fn simulate(options: &SimOptions) -> Result<Report, CommandError> {
    let Some(mtu) = Mtu::from_bytes(options.mtu) else {
        let sentence = "is no path MTU: choose 256, 512, 1024, 2048 or 4096";
        return Err(CommandError::Failed(format!("--mtu {} {sentence}", options.mtu)));
    };
    let mut world = World::new(FabricConfig {
        seed: options.seed,
        delay_ns: options.delay,
        jitter_ns: options.jitter,
        rate_bits_per_second: Some(options.rate),
        queue_bytes: options.queue as usize,
        faults: WirePlan::seeded(options.seed)
            .by_chance(options.loss, Fault::Drop)
            .by_chance(options.reorder, Fault::delay((2 * options.delay).max(10_000)))
            .by_chance(options.duplicate, Fault::DUPLICATE)
            .by_chance(options.corrupt, Fault::FLIP),
        ..FabricConfig::default()
    });
    let hcas = add_hcas(&mut world, options)?;
    let terms = Terms { operation: options.op, size: options.size, messages: options.messages, mtu };
    let mut connections = Vec::new();
    for k in 0..usize::from(options.qps) {
        let (from, to) = (k % hcas.len(), (k + 1) % hcas.len());
        if let (Some(from), Some(to)) = (hcas.get(from), hcas.get(to)) {
            let seed = options.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(k as u64);
            connections.push(Connection::new([from, to], terms, seed).map_err(device)?);
        }
    }
    let wanted = u64::from(options.qps) * u64::from(options.messages);
    let progress = Progress::of(wanted, "messages");
    let (mut refused, mut turns) = (None, 0_u32);
    world.run_until(LIMIT_NS, || {
        turns = turns.wrapping_add(1);
        if turns.is_multiple_of(TURNS_PER_LOOK) {
            progress.is_at(connections.iter().map(|connection| connection.completed).sum());
        }
        for connection in &mut connections {
            if let Err(error) = connection.turn() {
                refused = Some(error);
            }
        }
        refused.is_some() || connections.iter().all(Connection::is_done)
    });
    if let Some(error) = refused {
        return Err(device(error));
    }
    Ok(Report::new(&world, &hcas, &connections, world.now_ns(), wanted))
}

fn add_hcas(world: &mut World, options: &SimOptions) -> Result<Vec<Arc<Hca>>, CommandError> {
    let mut hcas = Vec::new();
    for k in 0..options.hcas {
        let address = IpAddr::V4(Ipv4Addr::from(0x0a00_0001 + u32::from(k)));
        let gid = GidEntry::new(address, "sim", 0, Mtu::Mtu4096);
        let config = HcaConfig::new(&format!("pumice{k}"), vec![gid]);
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
