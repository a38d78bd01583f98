//! Faults in `cargo test`: a program's own code on a simulated network that loses packets, in virtual time
//! and the same in every run.
//!
//! ```sh
//! cargo test -p pumice-verbs --example simulated_faults
//! ```

use std::net::IpAddr;
use std::time::Duration;

use pumice_verbs::{
    Access, CompletionQueue, Device, DeviceOptions, FabricConfig, Fault, FaultPlan, MemoryRegion,
    RcQueuePair, Result, SendRequest, Simulation, VerbsError, WirePlan,
};

/// Of virtual time.
const LIMIT: Duration = Duration::from_secs(60);

/// What is tested: a store that writes records to a peer, and connects anew when the connection fails.
pub(crate) struct Store {
    memory: MemoryRegion,
    cq: CompletionQueue,
    qp: RcQueuePair,
    /// Where the records go.
    peer: (RcQueuePair, MemoryRegion),
    pub(crate) reconnected: u32,
}

impl Store {
    pub(crate) fn new(own: &Device, other: &Device) -> Result<Store> {
        let side = |device: &Device| -> Result<_> {
            let domain = device.protection_domain()?;
            let cq = device.completion_queue(16)?;
            let memory = domain.allocate(1 << 16, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
            let qp = RcQueuePair::builder(&domain, &cq, &cq).build()?;
            Ok((qp, cq, memory))
        };
        let ((qp, cq, memory), (peer, _, peer_memory)) = (side(own)?, side(other)?);
        let store = Store { memory, cq, qp, peer: (peer, peer_memory), reconnected: 0 };
        store.connect()?;
        Ok(store)
    }

    fn connect(&self) -> Result<()> {
        self.qp.connect(&self.peer.0.endpoint(), &Default::default())?;
        self.peer.0.connect(&self.qp.endpoint(), &Default::default())
    }

    /// Writes a record. A connection that fails is made anew, once.
    pub(crate) fn put(&mut self, record: &[u8]) -> Result<()> {
        match self.write(record) {
            Err(VerbsError::Completed(_)) => {
                self.reconnected += 1;
                self.qp.reset()?;
                self.peer.0.reset()?;
                self.connect()?;
                self.write(record)
            }
            result => result,
        }
    }

    fn write(&self, record: &[u8]) -> Result<()> {
        self.memory.write(0, record)?;
        let local = [self.memory.slice(..record.len())?];
        self.qp.post_send(&SendRequest::write(&local, self.peer.1.remote()).signaled())?;
        self.cq.wait_success(LIMIT).map(drop)
    }

    /// What the peer has.
    pub(crate) fn stored(&self, length: usize) -> Result<Vec<u8>> {
        self.peer.1.to_vec(0, length)
    }
}

/// Two devices on a network that loses so many of a million packets; the first also has this plan.
pub(crate) fn devices(lost_ppm: u32, plan: FaultPlan) -> Result<(Simulation, Device, Device)> {
    let faults = WirePlan::seeded(7).by_chance(lost_ppm, Fault::Drop);
    let simulation = Simulation::new(FabricConfig { faults, ..FabricConfig::default() });
    let at = |last: u8| DeviceOptions::new().addresses([IpAddr::from([10, 0, 0, last])]);
    let own = simulation.device_with(at(1).faults(plan))?;
    let other = simulation.device_with(at(2))?;
    Ok((simulation, own, other))
}

#[expect(clippy::print_stdout, reason = "its result")]
fn main() -> Result<()> {
    let (simulation, own, other) = devices(100_000, FaultPlan::new())?;
    let mut store = Store::new(&own, &other)?;
    let record = [7; 50_000];
    store.put(&record)?;
    assert_eq!(store.stored(record.len())?, record, "packets that were lost are sent again");
    let lost = simulation.fabric().stats().lost;
    println!("stored in {} µs of virtual time, {lost} packets lost", simulation.now_ns() / 1000);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_arrive_although_every_tenth_packet_is_lost() {
        let run = || {
            let (simulation, own, other) = devices(100_000, FaultPlan::new()).unwrap();
            let mut store = Store::new(&own, &other).unwrap();
            store.put(&[7; 50_000]).unwrap();
            assert_eq!(store.stored(50_000).unwrap(), [7; 50_000]);
            assert_eq!(store.reconnected, 0, "the device makes losses good");
            (simulation.now_ns(), simulation.fabric().stats().lost)
        };
        let first = run();
        assert!(first.1 > 0, "a run in which nothing went wrong tests nothing");
        assert_eq!(run(), first, "the same losses and the same time");
    }

    #[test]
    fn a_connection_that_fails_is_made_anew() {
        let plan = FaultPlan::new().with_line("complete status=retry-exceeded nth=2").unwrap();
        let (_simulation, own, other) = devices(0, plan).unwrap();
        let mut store = Store::new(&own, &other).unwrap();
        // The rule counts on each connection: the second record fails, and is the first one of the next.
        for record in 1..=2_u8 {
            store.put(&[record; 100]).unwrap();
            assert_eq!(store.stored(100).unwrap(), [record; 100]);
        }
        assert_eq!(store.reconnected, 1);
    }

    #[test]
    fn a_refused_post_is_the_programs_to_handle() {
        let plan = FaultPlan::new().with_line("fail call=ibv_post_send errno=ENOMEM nth=2").unwrap();
        let (_simulation, own, other) = devices(0, plan).unwrap();
        let mut store = Store::new(&own, &other).unwrap();
        store.put(b"one").unwrap();
        assert_eq!(store.put(b"two").unwrap_err().errno(), 12, "ENOMEM");
        store.put(b"three").unwrap();
    }
}
