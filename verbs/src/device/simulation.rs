//! Devices on a simulated fabric, in virtual time.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pumice_device::port::{Fabric, FabricConfig};
use pumice_device::world::World;

/// A network without sockets, threads and clocks. Time passes only in the calls that wait: those of this
/// type, and those of its devices' completion queues, channels and events. The same calls with the same seed
/// give the same packets at the same nanoseconds. Cheap to clone. A device that was dropped keeps its
/// address.
#[derive(Debug, Clone)]
pub struct Simulation(Arc<Mutex<SimulationInner>>);

#[derive(Debug)]
pub(super) struct SimulationInner {
    pub(super) world: World,
    pub(super) device_count: u32,
}

impl Simulation {
    /// Creates a network without devices at time 0.
    pub fn new(fabric: FabricConfig) -> Simulation {
        Simulation(Arc::new(Mutex::new(SimulationInner { world: World::new(fabric), device_count: 0 })))
    }

    /// Returns the network, with its faults, partitions and statistics.
    pub fn fabric(&self) -> Fabric {
        self.lock().world.fabric().clone()
    }

    /// Returns the virtual time in ns.
    pub fn now_ns(&self) -> u64 {
        self.lock().world.now_ns()
    }

    /// Runs everything that can happen now, then advances the time to the next event. Returns false if there
    /// is none.
    pub fn step(&self) -> bool {
        self.lock().world.step()
    }

    /// Advances time until `done` returns true, or until `limit` of virtual time has passed or nothing is
    /// left to happen; returns whether it was done.
    pub fn run_until(&self, limit: Duration, mut done: impl FnMut() -> bool) -> bool {
        self.wait(limit, || done().then_some(())).is_some()
    }

    /// Advances time until nothing is left to happen, or by at most about `limit`.
    pub fn run_for(&self, limit: Duration) {
        self.run_until(limit, || false);
    }

    /// Runs everything that can happen now.
    pub(crate) fn settle(&self) {
        self.lock().world.settle();
    }

    /// Advances time by `for_ns`.
    pub(super) fn pass(&self, for_ns: u64) {
        self.lock().world.run_for(for_ns);
    }

    /// Advances time until `attempt` returns something, as [`Simulation::run_until`] does. The simulation is
    /// not locked during attempts.
    pub(crate) fn wait<R>(&self, limit: Duration, mut attempt: impl FnMut() -> Option<R>) -> Option<R> {
        let limit_ns = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        let end_ns = self.now_ns().saturating_add(limit_ns);
        loop {
            self.lock().world.settle();
            if let Some(result) = attempt() {
                return Some(result);
            }
            if self.now_ns() >= end_ns || !self.step() {
                return attempt();
            }
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, SimulationInner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
