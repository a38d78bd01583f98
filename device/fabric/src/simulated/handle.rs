//! The handle by which an owner uses the simulated network.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use pumice_faults::WirePlan;

use super::config::{FabricConfig, FabricStats};
use super::network::{Network, lock};
use super::port::SimPort;
use pumice_model::network::topology::QueueReport;

/// The simulated network. Clones are the same network.
///
/// Time only moves when [`advance_to`](Fabric::advance_to) says so (or a port is asked to receive at a later
/// time): the caller steps from event to event with [`next_event_ns`](Fabric::next_event_ns).
#[derive(Debug, Clone)]
pub struct Fabric {
    network: Arc<Mutex<Network>>,
}

impl Fabric {
    /// Creates a network without ports.
    pub fn new(config: FabricConfig) -> Fabric {
        Fabric { network: Arc::new(Mutex::new(Network::new(config))) }
    }

    /// Attaches a new port with these addresses. An address another port has moves to the new one. The port
    /// leaves the network when dropped.
    pub fn attach(&self, addresses: &[IpAddr]) -> SimPort {
        let index = lock(&self.network).attach(addresses);
        SimPort::new(Arc::clone(&self.network), index)
    }

    /// Returns the time of the next event, in virtual time: a packet arrives at a port or moves on in a
    /// switch.
    pub fn next_event_ns(&self) -> Option<u64> {
        lock(&self.network).next_event_ns()
    }

    /// Puts everything that has arrived by `now_ns` into the ports' receive buffers. Time never goes back.
    pub fn advance_to(&self, now_ns: u64) {
        lock(&self.network).advance_to(now_ns);
    }

    /// Applies a fault plan from now on, in place of the earlier one. Packets are counted from the fabric's
    /// beginning.
    pub fn play(&self, plan: &WirePlan) {
        lock(&self.network).faults.play(plan);
    }

    /// Returns the current configuration.
    pub fn config(&self) -> FabricConfig {
        lock(&self.network).config.clone()
    }

    /// Cuts the two ports that have these addresses off from each other, by any of their addresses. Returns
    /// false, without an effect, if one of them is not attached.
    pub fn cut(&self, one: IpAddr, other: IpAddr) -> bool {
        lock(&self.network).set_cut(one, other, true)
    }

    /// Undoes [`cut`](Fabric::cut). Returns false if one of the addresses is not attached.
    pub fn heal(&self, one: IpAddr, other: IpAddr) -> bool {
        lock(&self.network).set_cut(one, other, false)
    }

    /// Undoes every cut.
    pub fn heal_all(&self) {
        lock(&self.network).heal_all();
    }

    /// Stops the port with this address: it takes nothing from its receive buffer, like a process that is
    /// stopped. Returns false, without an effect, if it is not attached.
    pub fn stop(&self, address: IpAddr) -> bool {
        lock(&self.network).set_stopped(address, true)
    }

    /// Undoes [`stop`](Fabric::stop). Returns false if the address is not attached.
    pub fn resume(&self, address: IpAddr) -> bool {
        lock(&self.network).set_stopped(address, false)
    }

    /// Takes the port with this address off the network, like a process that is killed: what it has not taken
    /// is gone, what is sent to it is lost, and what it sends is refused. Returns false if it is not
    /// attached.
    pub fn kill(&self, address: IpAddr) -> bool {
        lock(&self.network).kill(address)
    }

    /// Returns the statistics so far.
    pub fn stats(&self) -> FabricStats {
        lock(&self.network).stats()
    }

    /// Returns the queues in front of all links, if the network has switches.
    pub fn queues(&self) -> Vec<QueueReport> {
        lock(&self.network).queues()
    }

    /// Processes the events in switches before the next packet arrives at a port, but none after `limit_ns`,
    /// and returns the time of that arrival. Nothing may be sent before the earlier one of the two.
    pub fn pass_switches(&self, limit_ns: u64) -> Option<u64> {
        lock(&self.network).pass_switches(limit_ns)
    }

    /// Returns a digest of everything that happened so far: what arrived where and when with which bytes, and
    /// what was lost. Two runs with equal digests were the same run.
    pub fn digest(&self) -> u64 {
        lock(&self.network).digest()
    }
}
