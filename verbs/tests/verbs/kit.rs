//! Two sides of a connection, on either kind of network.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use pumice_verbs::{
    Access, CompletionQueue, Device, DeviceOptions, FabricConfig, MemoryRegion, ProtectionDomain,
    RcQueuePair, Simulation, WcStatus, WorkCompletion,
};

/// Far longer than anything here takes; of virtual time in simulations.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// All rights that memory can grant to peers.
pub(crate) fn all_access() -> Access {
    Access::LOCAL_WRITE
        | Access::REMOTE_WRITE
        | Access::REMOTE_READ
        | Access::REMOTE_ATOMIC
        | Access::FLUSH_GLOBAL
        | Access::MW_BIND
}

pub(crate) struct TestSide {
    pub(crate) device: Device,
    pub(crate) domain: ProtectionDomain,
    pub(crate) cq: CompletionQueue,
    pub(crate) memory: MemoryRegion,
}

impl TestSide {
    pub(crate) fn new(device: Device) -> TestSide {
        let domain = device.protection_domain().unwrap();
        let cq = device.completion_queue(256).unwrap();
        let memory = domain.allocate(1 << 18, all_access()).unwrap();
        TestSide { device, domain, cq, memory }
    }

    pub(crate) fn rc(&self) -> RcQueuePair {
        RcQueuePair::builder(&self.domain, &self.cq, &self.cq).build().unwrap()
    }

    /// The next completion, which must be successful and of this request.
    pub(crate) fn expect(&self, wr_id: u64) -> WorkCompletion {
        let completion = self.cq.wait_success(LIMIT).unwrap();
        assert_eq!(completion.wr_id, wr_id);
        completion
    }

    /// The next completion, which must fail like this.
    pub(crate) fn expect_failure(&self, wr_id: u64, status: WcStatus) {
        let completion = self.cq.wait_one(LIMIT).unwrap();
        assert_eq!((completion.wr_id, completion.status), (wr_id, status));
    }

    /// Writes a pattern that differs from offset to offset, and returns it.
    pub(crate) fn pattern(&self, offset: usize, length: usize) -> Vec<u8> {
        let bytes: Vec<u8> = (0..length).map(|n| (n * 7 + n / 251 + offset) as u8).collect();
        self.memory.write(offset, &bytes).unwrap();
        bytes
    }
}

pub(crate) fn simulated() -> (TestSide, TestSide) {
    let simulation = Simulation::new(FabricConfig::default());
    let device = |last| simulation.device(IpAddr::V4(Ipv4Addr::new(10, 0, 0, last))).unwrap();
    (TestSide::new(device(1)), TestSide::new(device(2)))
}

/// Devices on 127.89.`net`.1 and .2: each test has its own `net`, so that tests may run at the same time.
pub(crate) fn udp(net: u8) -> (TestSide, TestSide) {
    on_udp_with(net, DeviceOptions::new())
}

/// As [`udp`]; the first device has these options.
pub(crate) fn on_udp_with(net: u8, options: DeviceOptions) -> (TestSide, TestSide) {
    let device = |options: DeviceOptions, last| {
        let address = IpAddr::V4(Ipv4Addr::new(127, 89, net, last));
        TestSide::new(Device::open(options.addresses([address])).unwrap())
    };
    (device(options, 1), device(DeviceOptions::new(), 2))
}

/// Runs a test on both kinds of network.
pub(crate) fn on_both(net: u8, test: impl Fn(TestSide, TestSide)) {
    let (a, b) = simulated();
    test(a, b);
    let (a, b) = udp(net);
    test(a, b);
}

pub(crate) fn connected(a: &TestSide, b: &TestSide) -> (RcQueuePair, RcQueuePair) {
    let (one, other) = (a.rc(), b.rc());
    one.connect(&other.endpoint(), &Default::default()).unwrap();
    other.connect(&one.endpoint(), &Default::default()).unwrap();
    (one, other)
}
