//! How to open a device.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use pumice_device::clock::Clock;
use pumice_device::gid_table::GidEntry;
use pumice_device::hca::{Hca, HcaConfig};
use pumice_device::interface::{Interface, gid_addresses, interfaces};
use pumice_device::limits::Limits;
use pumice_device::port::{CapturePort, FaultConfig, FaultPort, Port, UdpConfig, UdpPort};
use pumice_device::resources::ExplainHook;
use pumice_transport::types::{Cause, Mtu};
use pumice_transport::wire::Qpn;

use crate::error::{Result, VerbsError};

pub(crate) const DEFAULT_NAME: &str = "pumice0";

/// How to open a [`crate::Device`]. The default has all addresses of the machine and disturbs nothing.
#[derive(Default)]
#[must_use = "open a device with it"]
pub struct DeviceOptions {
    pub(crate) name: Option<String>,
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) limits: Limits,
    faults: Option<FaultConfig>,
    capture: Option<PathBuf>,
    explain: Option<ExplainHook>,
    reuse_port: bool,
    buffer_bytes: Option<usize>,
}

impl fmt::Debug for DeviceOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceOptions")
            .field("addresses", &self.addresses)
            .field("faults", &self.faults)
            .field("capture", &self.capture)
            .finish_non_exhaustive()
    }
}

impl DeviceOptions {
    /// The default options.
    pub fn new() -> DeviceOptions {
        DeviceOptions::default()
    }

    /// Device name; by default "pumice0" (in a simulation "pumice0", "pumice1", …).
    pub fn name(mut self, name: &str) -> DeviceOptions {
        self.name = Some(name.to_owned());
        self
    }

    /// Addresses in GID table order; by default all of the machine. With exactly one, the device takes UDP port
    /// 4791 of this address only, so that others of the machine can have theirs.
    pub fn addresses(mut self, addresses: impl IntoIterator<Item = IpAddr>) -> DeviceOptions {
        self.addresses = addresses.into_iter().collect();
        self
    }

    /// Sizes of tables and queues.
    pub fn limits(mut self, limits: Limits) -> DeviceOptions {
        self.limits = limits;
        self
    }

    /// What goes wrong with packets on their way out.
    pub fn faults(mut self, faults: FaultConfig) -> DeviceOptions {
        self.faults = Some(faults);
        self
    }

    /// Writes every packet to a pcapng file, replacing an old one. Packets are captured where they meet the
    /// network: after the faults.
    pub fn capture(mut self, file: impl Into<PathBuf>) -> DeviceOptions {
        self.capture = Some(file.into());
        self
    }

    /// Is told why queue pairs fail and messages are dropped. Called with the device locked: it must not call
    /// the device.
    pub fn explain(mut self, explain: impl Fn(Qpn, &Cause) + Send + 'static) -> DeviceOptions {
        self.explain = Some(Box::new(move |context, cause| explain(context.qpn, cause)));
        self
    }

    /// Shares the UDP port with other sockets of the same user (SO_REUSEPORT).
    pub fn reuse_port(mut self, reuse_port: bool) -> DeviceOptions {
        self.reuse_port = reuse_port;
        self
    }

    /// Bytes asked for as socket buffers, each way; 4 MiB by default. The system may give less
    /// (net.core.rmem_max).
    pub fn buffer_bytes(mut self, buffer_bytes: usize) -> DeviceOptions {
        self.buffer_bytes = Some(buffer_bytes);
        self
    }

    pub(crate) fn open(self) -> Result<Arc<Hca>> {
        let gids = if self.addresses.is_empty() { machine_gids()? } else { gids_of(&self.addresses)? };
        let name = self.name.as_deref().unwrap_or(DEFAULT_NAME);
        if gids.is_empty() {
            return Err(VerbsError::Invalid {
                object: "device",
                attribute: "addresses",
                problem: "are none: no interface of the machine is up".to_owned(),
                remedy: "bring an interface up, for instance `ip link set lo up`",
            });
        }
        let wildcard = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
        let address = if let [only] = *self.addresses { only } else { wildcard };
        let mut udp = UdpConfig { reuse_port: self.reuse_port, ..UdpConfig::new(address) };
        udp.buffer_bytes = self.buffer_bytes.unwrap_or(udp.buffer_bytes);
        let port = UdpPort::bind(&udp).map_err(VerbsError::Port)?;
        // The device's clock starts at 0 now.
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let clock = Clock::monotonic();
        let mut config = HcaConfig { limits: self.limits, ..HcaConfig::new(name, gids) };
        let (faults, capture) = (self.faults, self.capture);
        config.explain = self.explain;
        let port = surround(Box::new(port), faults, capture, since_1970.as_nanos() as u64)?;
        Hca::open(config, port, clock).map(Arc::new).map_err(VerbsError::refused("device"))
    }

    /// What makes a simulated device.
    pub(crate) fn into_parts(self, name: String, gids: Vec<GidEntry>) -> (HcaConfig, Layers) {
        let mut config = HcaConfig { limits: self.limits, ..HcaConfig::new(&name, gids) };
        config.explain = self.explain;
        (config, Layers { faults: self.faults, capture: self.capture })
    }
}

/// What is to be put around a port.
pub(crate) struct Layers {
    faults: Option<FaultConfig>,
    capture: Option<PathBuf>,
}

impl Layers {
    /// Is there anything?
    pub(crate) fn is_empty(&self) -> bool {
        self.faults.is_none() && self.capture.is_none()
    }

    /// Puts it around a simulated port.
    pub(crate) fn surround(self, port: Box<dyn Port>) -> Result<Box<dyn Port>> {
        surround(port, self.faults, self.capture, 0)
    }
}

fn surround(
    mut port: Box<dyn Port>,
    faults: Option<FaultConfig>,
    capture: Option<PathBuf>,
    time_base_ns: u64,
) -> Result<Box<dyn Port>> {
    if let Some(file) = capture {
        let captured = CapturePort::create(port, &file, time_base_ns);
        port =
            Box::new(captured.map_err(|source| VerbsError::Os { task: "create the capture file", source })?);
    }
    if let Some(faults) = faults {
        port = Box::new(FaultPort::new(port, faults));
    }
    Ok(port)
}

/// The addresses of this machine that make a GID table, best first.
pub(crate) fn machine_gids() -> Result<Vec<GidEntry>> {
    let interfaces = list()?;
    Ok(gid_addresses(&interfaces).into_iter().map(|(address, on)| entry(address, on)).collect())
}

/// Entries for addresses of this machine; all of 127.0.0.0/8 are.
fn gids_of(addresses: &[IpAddr]) -> Result<Vec<GidEntry>> {
    let interfaces = list()?;
    let has = |interface: &&Interface, address| interface.addresses.iter().any(|&(own, _)| own == address);
    addresses
        .iter()
        .map(|&address| {
            interfaces
                .iter()
                .find(|interface| has(interface, address))
                .or_else(|| interfaces.iter().find(|interface| address.is_loopback() && interface.loopback))
                .map(|interface| entry(address, interface))
                .ok_or_else(|| VerbsError::Invalid {
                    object: "device",
                    attribute: "addresses",
                    problem: format!("has {address}, which no interface of this machine has"),
                    remedy: "choose one that `ip address` shows, or add it to an interface",
                })
        })
        .collect()
}

fn list() -> Result<Vec<Interface>> {
    interfaces().map_err(|source: io::Error| VerbsError::Os { task: "list the network interfaces", source })
}

fn entry(address: IpAddr, interface: &Interface) -> GidEntry {
    let link_mtu = u32::try_from(interface.mtu).unwrap_or(u32::MAX);
    // Without an answer of the system, what fits any Ethernet.
    let mtu = Mtu::largest_for_link(link_mtu).unwrap_or(Mtu::Mtu1024);
    GidEntry::new(address, &interface.name, interface.index, mtu)
}
