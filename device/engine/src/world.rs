//! Several HCAs on a simulated fabric, in virtual time.

use std::net::IpAddr;

use pumice_fabric::{Fabric, FabricConfig, SimPort};
use pumice_model::addresses::gid_table::GidEntry;
use pumice_model::port::Port;
use pumice_platform::clock::{Clock, VirtualTime};
use pumice_transport::types::Mtu;

use crate::hca::{Hca, HcaConfig, HcaError};

/// A fabric, the HCAs on it, and the time they share. Nothing happens except in [`World::step`], so a run is
/// a function of the calls and of the fabric's seed.
#[derive(Debug)]
pub struct World {
    time: VirtualTime,
    fabric: Fabric,
    hcas: Vec<std::sync::Arc<Hca>>,
}

impl World {
    /// Returns a world without HCAs at time 0.
    pub fn new(config: FabricConfig) -> World {
        World { time: VirtualTime::default(), fabric: Fabric::new(config), hcas: Vec::new() }
    }

    /// Adds an HCA with one address and path MTU 4096.
    ///
    /// # Errors
    /// The operating system cannot create a descriptor.
    pub fn add_hca(&mut self, address: IpAddr) -> Result<std::sync::Arc<Hca>, HcaError> {
        let name = format!("pumice{}", self.hcas.len());
        let config = HcaConfig::new(&name, vec![GidEntry::new(address, "sim", 0, Mtu::Mtu4096)]);
        self.add_hca_with(config, |port| Box::new(port))
    }

    /// Adds an HCA; `wrap` puts middleware around its port.
    ///
    /// # Errors
    /// As [`World::add_hca`].
    pub fn add_hca_with(
        &mut self,
        config: HcaConfig,
        wrap: impl FnOnce(SimPort) -> Box<dyn Port>,
    ) -> Result<std::sync::Arc<Hca>, HcaError> {
        let addresses: Vec<IpAddr> = config.gids.iter().map(|entry| entry.ip).collect();
        self.add_opened(&addresses, |port, clock| Hca::open(config, wrap(port), clock))
    }

    /// Adds the HCA that `open` makes of a port with these addresses and of the world's clock.
    pub fn add_opened<E>(
        &mut self,
        addresses: &[IpAddr],
        open: impl FnOnce(SimPort, Clock) -> Result<Hca, E>,
    ) -> Result<std::sync::Arc<Hca>, E> {
        let port = self.fabric.attach(addresses);
        let hca = std::sync::Arc::new(open(port, Clock::Virtual(self.time.clone()))?);
        self.hcas.push(std::sync::Arc::clone(&hca));
        Ok(hca)
    }

    /// Returns the network.
    pub fn fabric(&self) -> &Fabric {
        &self.fabric
    }

    /// Returns the virtual time in ns.
    pub fn now_ns(&self) -> u64 {
        self.time.now_ns()
    }

    /// Executes everything that can happen now; then moves time to the next event. Returns false if there is
    /// none.
    pub fn step(&mut self) -> bool {
        self.settle();
        let Some(next_ns) = self.next_ns(u64::MAX) else { return false };
        self.advance_to(next_ns.max(self.now_ns()));
        true
    }

    /// Drives every HCA until none has anything to do at this time.
    pub fn settle(&mut self) {
        // The bound makes a mistake show as a stuck test and not as a hung one.
        for _ in 0..100_000 {
            let mut progress = false;
            for hca in &self.hcas {
                progress |= hca.drive();
            }
            if !progress {
                return;
            }
        }
    }

    fn advance_to(&mut self, now_ns: u64) {
        self.time.advance_to(now_ns);
        self.fabric.advance_to(now_ns);
        self.settle();
    }

    /// Moves time without driving an adapter.
    #[cfg(test)]
    pub(crate) fn pass_time(&mut self, now_ns: u64) {
        self.time.advance_to(now_ns);
        self.fabric.advance_to(now_ns);
    }

    /// Lets `for_ns` of virtual time pass, with all events in it.
    pub fn run_for(&mut self, for_ns: u64) {
        let end_ns = self.now_ns().saturating_add(for_ns);
        loop {
            self.settle();
            match self.next_ns(end_ns) {
                Some(next_ns) if next_ns < end_ns => self.advance_to(next_ns.max(self.now_ns())),
                _ => return self.advance_to(end_ns),
            }
        }
    }

    /// Returns when the next event at an adapter is, in ns. Events in switches up to then have happened, but
    /// none after `limit_ns`.
    fn next_ns(&self, limit_ns: u64) -> Option<u64> {
        let deadline_ns = self.hcas.iter().filter_map(|hca| hca.deadline_ns()).min();
        let arrival_ns = self.fabric.pass_switches(limit_ns.min(deadline_ns.unwrap_or(u64::MAX)));
        deadline_ns.into_iter().chain(arrival_ns).min()
    }

    /// Steps until `done` or until `limit_ns` of virtual time have passed. Returns whether it was done.
    pub fn run_until(&mut self, limit_ns: u64, mut done: impl FnMut() -> bool) -> bool {
        let end_ns = self.now_ns().saturating_add(limit_ns);
        loop {
            self.settle();
            if done() {
                return true;
            }
            if self.now_ns() >= end_ns || !self.step() {
                return done();
            }
        }
    }
}
