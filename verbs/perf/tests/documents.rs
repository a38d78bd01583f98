//! The Rust of documents, so that a compiler reads it: the root crate's `tests/docs.rs` looks for the blocks
//! here.
//! Most of them need a peer, and are compiled only; `tests/verbs` runs the same calls.
#![allow(dead_code)]

use std::error::Error;
use std::net::{IpAddr, TcpStream};
use std::time::Duration;

use pumice_perf::{Operation, Plan, Service, Session, SessionOptions};
use pumice_verbs::{
    Access, CheckOptions, Congestion, Connection, ConnectionParams, DcqcnParameters, Device, DeviceOptions,
    Link, LinkDirection, MemoryRegion, NotificationParameters, RcEndpoint, RcQueuePair, RemoteSlice,
    SendRequest,
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// docs/rust.md: the first block.
fn writes_to_a_peer(
    address: IpAddr,
    remote: RemoteSlice,
    send_to_peer: impl FnOnce([u8; 24]),
    receive_from_peer: impl FnOnce() -> &'static [u8; 24],
) -> Result<()> {
    let device = Device::open(DeviceOptions::new().addresses([address]))?;
    let domain = device.protection_domain()?;
    let cq = device.completion_queue(16)?;
    let memory = domain.allocate(4096, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    let qp = RcQueuePair::builder(&domain, &cq, &cq).build()?;
    send_to_peer(qp.endpoint().to_bytes());
    qp.connect(&RcEndpoint::from_bytes(receive_from_peer())?, &Default::default())?;
    qp.post_send(&SendRequest::write(&[memory.slice(..64)?], remote).signaled())?;
    cq.wait_success(Duration::from_secs(1))?;
    Ok(())
}

/// docs/rust.md: a device with a link.
fn has_a_link(address: IpAddr) -> Result<Device> {
    let way =
        LinkDirection { rate_bits_per_second: Some(10_000_000_000), delay_ns: 5_000, ..LinkDirection::NONE };
    let device = Device::open(DeviceOptions::new().addresses([address]).link(Link::both(way)))?;
    Ok(device)
}

/// docs/rust.md: both sides of a connection by address.
#[expect(unused_variables, reason = "the block of the document has both sides, with one name")]
fn connects_by_address(
    device: &Device,
    qp: RcQueuePair,
    memory: &MemoryRegion,
    timeout: Duration,
) -> Result<()> {
    let listener = device.listen(7471)?;
    let connection =
        listener.request(timeout)?.accept(&qp, &ConnectionParams::default(), &memory.remote())?;

    let server = "192.0.2.1:7471".parse()?;
    let connection = Connection::connect(&qp, server, &ConnectionParams::default(), b"hello", timeout)?;
    let remote: RemoteSlice = connection.private_data()?;
    let _ = remote;
    Ok(())
}

/// docs/rust.md: a measurement.
fn measures(server: &str) -> Result<f64> {
    let plan = Plan::latency(Operation::Send, Service::Rc).size_bytes(64).verify(true).build()?;
    let mut session = Session::open(&plan, TcpStream::connect(server)?, &SessionOptions::default())?;
    let report = session.run(&mut |_| ())?;
    Ok(report.value)
}

/// docs/congestion.md.
fn chooses_dcqcn() -> Result<Device> {
    let parameters = DcqcnParameters { line_rate: 40_000, ..DcqcnParameters::PAPER };
    let options =
        DeviceOptions::new().congestion(Congestion::dcqcn(parameters, NotificationParameters::default()));
    Ok(Device::open(options)?)
}

/// docs/checks/README.md.
fn checks_itself() -> Result<()> {
    let device = Device::open(DeviceOptions::new().check(CheckOptions::new().report("found.sarif")))?;
    assert!(device.findings().is_empty());
    Ok(())
}

/// Where `Result` is the standard library's.
mod profiles {
    use pumice_verbs::{Device, DeviceOptions, VerbsError};

    /// docs/devices.md: the devices of a profile.
    fn opens_all() -> Result<usize, VerbsError> {
        let rails: Vec<Device> =
            DeviceOptions::of_profile("laptop")?.into_iter().map(Device::open).collect::<Result<_, _>>()?;
        Ok(rails.len())
    }
}
