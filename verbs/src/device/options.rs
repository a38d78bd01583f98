//! The options for opening a device.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pumice_device::addresses::address_handle::GidSource;
use pumice_device::addresses::gid_table::GidEntry;
use pumice_device::event::Subscriber;
use pumice_device::faults::FaultPlan;
use pumice_device::hca::{Hca, HcaConfig};
use pumice_device::listeners::{LogHook, ReportSource, StepHook};
use pumice_device::opening::{OpenError, Opening, UdpNetwork};
use pumice_device::outside;
use pumice_device::outside::interface::{Interface, gid_addresses, interfaces};
use pumice_device::outside::output_file::{OutputFile, complete_lines, on_standard_error};
use pumice_device::platform::limits::Limits;
use pumice_device::port::{Link, Topology};
use pumice_device::profile::{AdaptiveTimer, Failures, QpnReuse};
use pumice_device::settings::{CopyMode, Wire};
use pumice_device::shuffle::{Placement, ShuffleOptions};
use pumice_device::trace::{DEFAULT_LIMIT_BYTES, TraceFile, TraceSource, create_private};
use pumice_transport::qp::Congestion;
use pumice_transport::types::{Cause, Mtu};
use pumice_transport::wire::Qpn;

use crate::check::CheckOptions;
use crate::error::{Result, VerbsError};

pub(crate) const DEFAULT_NAME: &str = "pumice0";

/// Options for opening a [`crate::Device`]. The default has all addresses of the machine and injects no
/// faults.
#[derive(Default)]
#[must_use = "open a device with it"]
pub struct DeviceOptions {
    pub(crate) name: Option<String>,
    pub(crate) addresses: Vec<IpAddr>,
    limits: Limits,
    active_mtu: Option<Mtu>,
    congestion: Congestion,
    faults: FaultPlan,
    tag: Option<String>,
    shuffle: Option<u64>,
    capture: Option<PathBuf>,
    trace: Option<PathBuf>,
    trace_limit_bytes: Option<u64>,
    check: Option<CheckOptions>,
    log: Option<LogHook>,
    fault_log: Option<StepHook>,
    fault_report: Option<PathBuf>,
    exclusive: bool,
    buffer_bytes: Option<usize>,
    wire: Wire,
    without_lanes: bool,
    copy: CopyMode,
    link: Option<Link>,
    topology: Option<Arc<Topology>>,
    pub(super) of_profile: Option<ProfileSettings>,
}

/// The properties that a device has from a profile and that no other option sets.
#[derive(Debug)]
pub(super) struct ProfileSettings {
    pub(super) pkeys: Vec<u16>,
    pub(super) guid: u64,
    pub(super) adaptive_timer: AdaptiveTimer,
    pub(super) failures: Failures,
    /// The program has several devices.
    pub(super) is_one_of_several: bool,
    pub(super) completions_outlive_qp: bool,
    pub(super) qpn_reuse: QpnReuse,
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
    /// Returns the default options.
    pub fn new() -> DeviceOptions {
        DeviceOptions::default()
    }

    /// Sets the device name; by default "pumice0" (in a simulation "pumice0", "pumice1", …).
    pub fn name(mut self, name: &str) -> DeviceOptions {
        self.name = Some(name.to_owned());
        self
    }

    /// Sets the addresses in GID table order; by default all of the machine. With exactly one, the device
    /// takes UDP port 4791 of this address only, so that others of the machine can have theirs.
    pub fn addresses(mut self, addresses: impl IntoIterator<Item = IpAddr>) -> DeviceOptions {
        self.addresses = addresses.into_iter().collect();
        self
    }

    /// Sets the sizes of tables and queues.
    pub fn limits(mut self, limits: Limits) -> DeviceOptions {
        self.limits = limits;
        self
    }

    /// Sets the largest path MTU of the port, and the longest datagram; by default that of the first
    /// address's interface.
    pub fn active_mtu(mut self, mtu: Mtu) -> DeviceOptions {
        self.active_mtu = Some(mtu);
        self
    }

    /// Sets the congestion control of queue pairs: they shrink their window when the peer sends CNPs (the
    /// default), or lower their rate as adapters with DCQCN do. Opening fails if a parameter is out of
    /// bounds.
    pub fn congestion(mut self, congestion: Congestion) -> DeviceOptions {
        self.congestion = congestion;
        self
    }

    /// Sets the faults to inject, the same in every run.
    pub fn faults(mut self, faults: FaultPlan) -> DeviceOptions {
        self.faults = faults;
        self
    }

    /// Sets the tag by which fault plans name this device's process; by default the name of the device. The
    /// fates of packets depend on it, so give the two ends of a connection different ones.
    pub fn tag(mut self, tag: &str) -> DeviceOptions {
        self.tag = Some(tag.to_owned());
        self
    }

    /// Shuffles by this seed what the specification leaves open to a device: the order of completions of
    /// different work queues, the number that a poll returns, spurious events, the order of payload before
    /// its completion. A correct program works with every seed. The tag is mixed in.
    pub fn shuffle(mut self, seed: u64) -> DeviceOptions {
        self.shuffle = Some(seed);
        self
    }

    /// Writes every packet to a pcapng file, replacing an old one. Packets are captured where they meet the
    /// network: after the faults.
    pub fn capture(mut self, file: impl Into<PathBuf>) -> DeviceOptions {
        self.capture = Some(file.into());
        self
    }

    /// Records all events in a file that only this user may read, replacing an old one: for `pumice trace`,
    /// and for [`pumice_device::trace`]. Opening fails if the file belongs to another user.
    pub fn trace(mut self, file: impl Into<PathBuf>) -> DeviceOptions {
        self.trace = Some(file.into());
        self
    }

    /// Sets the maximum size of the trace in bytes; 256 MiB by default. Further records are left out, and
    /// counted in the header of the trace.
    pub fn trace_limit_bytes(mut self, limit_bytes: u64) -> DeviceOptions {
        self.trace_limit_bytes = Some(limit_bytes);
        self
    }

    /// Checks the program for mistakes: each is printed on standard error when it is found, listed in the
    /// report, and returned by [`crate::Device::findings`]. Without this, the variables `PUMICE_CHECK` and
    /// related ones decide, which `pumice check` sets.
    pub fn check(mut self, check: CheckOptions) -> DeviceOptions {
        self.check = Some(check);
        self
    }

    /// Returns the check that is requested, here or by the environment.
    pub(crate) fn take_check(&mut self) -> Result<Option<CheckOptions>> {
        self.check.take().map_or_else(CheckOptions::of_environment, |check| Ok(Some(check)))
    }

    /// Calls `explain` with the reason when a queue pair fails or a message is dropped: on a thread of its
    /// own (in a simulation, inside the call that caused it, where it must not call the device).
    pub fn explain(mut self, explain: impl Fn(Qpn, &Cause) + Send + 'static) -> DeviceOptions {
        self.log = Some(Box::new(move |context, cause| explain(context.qpn, cause)));
        self
    }

    /// Calls `explain` with a sentence when the fault plan does something: on a thread of its own, in
    /// simulations too.
    pub fn explain_faults(mut self, explain: impl Fn(&str) + Send + 'static) -> DeviceOptions {
        self.fault_log = Some(Box::new(explain));
        self
    }

    /// Writes the actions of the fault plan to a file of JSON lines, replacing an old one. The report is
    /// itself a plan, by which the same happens again.
    pub fn fault_report(mut self, file: impl Into<PathBuf>) -> DeviceOptions {
        self.fault_report = Some(file.into());
        self
    }

    /// Reserves the UDP port of the address for this process. By default processes of one user share it, each
    /// with a part of the queue pair numbers of its own; nothing has to be started for that.
    pub fn exclusive(mut self, exclusive: bool) -> DeviceOptions {
        self.exclusive = exclusive;
        self
    }

    /// Sets the requested size of socket buffers in bytes, each way; 4 MiB by default. The system may give
    /// less (net.core.rmem_max).
    pub fn buffer_bytes(mut self, buffer_bytes: usize) -> DeviceOptions {
        self.buffer_bytes = Some(buffer_bytes);
        self
    }

    /// Sets the transport to other processes of this user in this network namespace: by default
    /// [`Wire::Auto`], through rings in shared memory where both processes can have them. With
    /// [`exclusive`](DeviceOptions::exclusive) packets go by UDP in any case.
    pub fn wire(mut self, wire: Wire) -> DeviceOptions {
        self.wire = wire;
        self
    }

    /// Sets whether messages of one packet take a short way through the device where nothing has to be
    /// decided: by default they do. Nothing but speed shows the difference.
    pub fn lanes(mut self, lanes: bool) -> DeviceOptions {
        self.without_lanes = !lanes;
        self
    }

    /// Sets the way in which long messages are copied to other processes of this user: by default
    /// [`CopyMode::Auto`], the faster one, which the first messages to each process find out.
    pub fn copy(mut self, copy: CopyMode) -> DeviceOptions {
        self.copy = copy;
        self
    }

    /// Sets the device's link in each direction: rate, delay, jitter, a bounded queue, ECN marks. Packets
    /// from one device to another pass two links, that of each. In a simulation the link adds to what the
    /// fabric does, exact to the nanosecond.
    pub fn link(mut self, link: Link) -> DeviceOptions {
        self.link = Some(link);
        self
    }

    /// Puts the device behind switches, which it shares with this user's other devices and programs that have
    /// an equal topology. One of its hosts must have an address of the device. A simulation has its switches
    /// from [`FabricConfig::topology`](crate::FabricConfig), and ignores this option.
    pub fn topology(mut self, topology: Topology) -> DeviceOptions {
        self.topology = Some(Arc::new(topology));
        self
    }

    pub(crate) fn open(self, subscriber: Option<Box<dyn Subscriber>>) -> Result<Arc<Hca>> {
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
        let (exclusive, buffer_bytes, wire, copy) = (self.exclusive, self.buffer_bytes, self.wire, self.copy);
        let one_of_several = self.of_profile.as_ref().is_some_and(|own| own.is_one_of_several);
        let ports = Vec::new();
        let network = UdpNetwork { address, exclusive, buffer_bytes, wire, copy, one_of_several, ports };
        let name = self.name.clone().unwrap_or_else(|| DEFAULT_NAME.to_owned());
        let mut opening = self.into_opening(name, gids);
        opening.hca.subscribers.extend(subscriber);
        opening.hca.gid_source = follows.then(|| -> GidSource { Box::new(|| machine_gids().ok()) });
        let opened = opening.on_udp(&network)?;
        Ok(Arc::new(opened.hca))
    }

    /// Returns what opens a device with these addresses.
    pub(crate) fn into_opening(self, name: String, gids: Vec<GidEntry>) -> Opening {
        let mut config = HcaConfig {
            limits: self.limits,
            active_mtu: self.active_mtu,
            congestion: self.congestion,
            lanes: !self.without_lanes,
            ..HcaConfig::new(&name, gids)
        };
        let mut names_device = false;
        if let Some(own) = self.of_profile {
            (config.pkeys, config.ca_guid) = (own.pkeys, own.guid);
            (config.completions_outlive_qp, config.qpn_reuse) = (own.completions_outlive_qp, own.qpn_reuse);
            (config.adaptive_timeout, config.failures) = (own.adaptive_timer.timeout(), own.failures);
            names_device = own.is_one_of_several;
        }
        let shuffle = self.shuffle.map(|seed| ShuffleOptions { seed, placement: Placement::Any });
        let opening = Opening {
            faults: self.faults,
            tag: self.tag,
            asks_about_calls: true,
            log: self.log,
            fault_log: self.fault_log,
            fault_report: self.fault_report.map(report_source),
            names_device,
            shuffle,
            link: self.link,
            topology: self.topology,
            trace: self.trace.map(|file| trace_source(file, self.trace_limit_bytes)),
            ..Opening::new(config)
        };
        match self.capture {
            Some(file) => opening.captured_to(file),
            None => opening,
        }
    }
}

impl From<OpenError> for VerbsError {
    fn from(error: OpenError) -> VerbsError {
        match error {
            OpenError::Port(error) => VerbsError::Port(error),
            OpenError::Share(error) => VerbsError::Sharing(error),
            OpenError::Capture(source) => VerbsError::Os { task: "create the capture file", source },
            OpenError::Trace(source) => VerbsError::Os { task: "write the trace", source },
            OpenError::Report(source) => VerbsError::Os { task: "write the report of faults", source },
            OpenError::Faults(error) => VerbsError::Invalid {
                object: "device",
                attribute: "faults",
                problem: format!("cannot be used: {error}"),
                remedy: "correct the plan",
            },
            OpenError::Topology(problem) => VerbsError::Invalid {
                object: "device",
                attribute: "topology",
                problem: format!("cannot be used: {problem}"),
                remedy: "correct the topology, or give the device the address of one of its hosts",
            },
            OpenError::Hca(error) => VerbsError::refused("device")(error),
        }
    }
}

/// Returns the function that creates the file of a report when the report begins.
fn report_source(file: PathBuf) -> ReportSource {
    Box::new(move || {
        let on_problem = Box::new(on_standard_error);
        Ok(Box::new(OutputFile::create(&file, "the report of faults", complete_lines, on_problem)?))
    })
}

/// Returns the function that creates the file of a trace when the port is open.
fn trace_source(path: PathBuf, limit_bytes: Option<u64>) -> TraceSource {
    Box::new(move || {
        let file = create_private(&path)?;
        file.set_len(0)?;
        let program_path = outside::environment::program();
        let program = Path::new(&program_path).file_name().unwrap_or_default().to_string_lossy().into_owned();
        let on_problem =
            Box::new(move |sentence: &str| on_standard_error(&format!("{}: {sentence}", path.display())));
        Ok(TraceFile { file, limit_bytes: limit_bytes.unwrap_or(DEFAULT_LIMIT_BYTES), program, on_problem })
    })
}

/// Returns the addresses of this machine that make a GID table, best first.
pub(crate) fn machine_gids() -> Result<Vec<GidEntry>> {
    let interfaces = list()?;
    Ok(gid_addresses(&interfaces).into_iter().map(|(address, on)| entry(address, on)).collect())
}

/// Returns entries for addresses of this machine, to which all of 127.0.0.0/8 belong.
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

pub(super) fn list() -> Result<Vec<Interface>> {
    interfaces().map_err(|source: io::Error| VerbsError::Os { task: "list the network interfaces", source })
}

fn entry(address: IpAddr, interface: &Interface) -> GidEntry {
    let link_mtu = u32::try_from(interface.mtu).unwrap_or(u32::MAX);
    // If the system does not report the MTU, one is used that any Ethernet carries.
    let mtu = Mtu::largest_for_link(link_mtu).unwrap_or(Mtu::Mtu1024);
    GidEntry::new(address, &interface.name, interface.index, mtu)
}
