//! How to open a device.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use pumice_device::addresses::address_watch::GidSource;
use pumice_device::addresses::gid_table::GidEntry;
use pumice_device::event::LogHook;
use pumice_device::faults::FaultPlan;
use pumice_device::ground::clock::Clock;
use pumice_device::ground::limits::Limits;
use pumice_device::hca::{Hca, HcaConfig};
use pumice_device::port::{CapturePort, FaultPort, Port, UdpConfig, UdpPort};
use pumice_device::share::{ShareConfig, SharedPort};
use pumice_device::system::interface::{Interface, gid_addresses, interfaces};
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
    limits: Limits,
    active_mtu: Option<Mtu>,
    faults: FaultPlan,
    capture: Option<PathBuf>,
    log: Option<LogHook>,
    exclusive: bool,
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

    /// Largest path MTU of the port, and longest datagram; by default that of the first address's interface.
    pub fn active_mtu(mut self, mtu: Mtu) -> DeviceOptions {
        self.active_mtu = Some(mtu);
        self
    }

    /// What goes wrong with packets on their way out.
    pub fn faults(mut self, faults: FaultPlan) -> DeviceOptions {
        self.faults = faults;
        self
    }

    /// Writes every packet to a pcapng file, replacing an old one. Packets are captured where they meet the
    /// network: after the faults.
    pub fn capture(mut self, file: impl Into<PathBuf>) -> DeviceOptions {
        self.capture = Some(file.into());
        self
    }

    /// Is told why queue pairs fail and messages are dropped: on a thread of its own (in a simulation, inside the
    /// call that caused it, where it must not call the device).
    pub fn explain(mut self, explain: impl Fn(Qpn, &Cause) + Send + 'static) -> DeviceOptions {
        self.log = Some(Box::new(move |context, cause| explain(context.qpn, cause)));
        self
    }

    /// Keeps the UDP port of the address to this process. By default processes of one user share it, each with a
    /// share of the queue pair numbers of its own; nothing has to be started for that.
    pub fn exclusive(mut self, exclusive: bool) -> DeviceOptions {
        self.exclusive = exclusive;
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
        if gids.is_empty() {
            return Err(VerbsError::Invalid {
                object: "device",
                attribute: "addresses",
                problem: "are none: no interface of the machine is up".to_owned(),
                remedy: "bring an interface up, for instance `ip link set lo up`",
            });
        }
        let follows = self.addresses.is_empty();
        let wildcard = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
        let address = if let [only] = *self.addresses { only } else { wildcard };
        let mut udp = UdpConfig::new(address);
        udp.buffer_bytes = self.buffer_bytes.unwrap_or(udp.buffer_bytes);
        let (port, process_slot): (Box<dyn Port>, u8) = if self.exclusive {
            (Box::new(UdpPort::bind(&udp).map_err(VerbsError::Port)?), 0)
        } else {
            let port = SharedPort::open(&ShareConfig::new(udp)).map_err(VerbsError::Share)?;
            let slot = port.process().value();
            (Box::new(port), slot)
        };
        // The device's clock starts at 0 now.
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let clock = Clock::monotonic();
        let name = self.name.clone().unwrap_or_else(|| DEFAULT_NAME.to_owned());
        let (mut config, layers) = self.into_parts(name, gids);
        config.process_slot = process_slot;
        config.gid_source = follows.then(|| -> GidSource { Box::new(|| machine_gids().ok()) });
        let port = layers.surround(port, since_1970.as_nanos() as u64)?;
        Hca::open(config, port, clock).map(Arc::new).map_err(VerbsError::refused("device"))
    }

    /// What makes a device with these addresses, and what goes around its port.
    pub(crate) fn into_parts(self, name: String, gids: Vec<GidEntry>) -> (HcaConfig, Layers) {
        let config = HcaConfig {
            limits: self.limits,
            active_mtu: self.active_mtu,
            log: self.log,
            ..HcaConfig::new(&name, gids)
        };
        (config, Layers { faults: self.faults, capture: self.capture })
    }
}

/// What is to be put around a port.
pub(crate) struct Layers {
    faults: FaultPlan,
    capture: Option<PathBuf>,
}

impl Layers {
    /// Whether there is nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.faults.is_empty() && self.capture.is_none()
    }

    /// Puts it around a port. `time_base_ns` makes the time of a capture of the device's clock.
    pub(crate) fn surround(self, mut port: Box<dyn Port>, time_base_ns: u64) -> Result<Box<dyn Port>> {
        if let Some(file) = self.capture {
            let captured = CapturePort::create(port, &file, time_base_ns);
            port = Box::new(
                captured.map_err(|source| VerbsError::Os { task: "create the capture file", source })?,
            );
        }
        if !self.faults.is_empty() {
            port = Box::new(FaultPort::new(port, &self.faults, Arc::default()));
        }
        Ok(port)
    }
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
