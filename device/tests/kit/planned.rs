//! Nodes with a fault plan, and their reports.

use std::io::{self, Write};
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use pumice_device::addresses::gid_table::GidEntry;
use pumice_device::faults::FaultPlan;
use pumice_device::hca::HcaConfig;
use pumice_device::opening::Opening;
use pumice_device::world::World;
use pumice_transport::types::Mtu;

use super::Node;

/// A report in memory.
#[derive(Clone, Default)]
pub struct FaultReport(Arc<Mutex<Vec<u8>>>);

impl Write for FaultReport {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl FaultReport {
    /// Its lines in order of the alphabet.
    pub fn sorted(&self) -> String {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        lines.join("\n")
    }
}

/// A node with a plan; its tag is its address.
pub fn node(world: &mut World, address: &str, plan: &FaultPlan) -> (Node, FaultReport) {
    named(world, "pumice0", address, plan)
}

/// The same with a name for the device.
pub fn named(world: &mut World, name: &str, address: &str, plan: &FaultPlan) -> (Node, FaultReport) {
    let report = FaultReport::default();
    let ip: IpAddr = address.parse().unwrap();
    let config = HcaConfig::new(name, vec![GidEntry::new(ip, "sim", 0, Mtu::Mtu4096)]);
    let out = report.clone();
    let opening = Opening {
        faults: plan.clone(),
        tag: Some(address.to_owned()),
        fault_report: Some(Box::new(move || Ok(Box::new(out)))),
        ..Opening::new(config)
    };
    (Node::on(opening.in_world(world).unwrap(), ip, 1 << 20, 256), report)
}

/// The plan of these lines.
pub fn plan(lines: &[&str]) -> FaultPlan {
    let plan = lines.iter().fold(FaultPlan::seeded(42), |plan, line| plan.with_line(line).unwrap());
    plan.check().unwrap();
    plan
}
