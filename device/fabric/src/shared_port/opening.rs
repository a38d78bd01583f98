//! Opening a shared port: a process index from the registry, the sockets that belong to it, and a place in
//! the group.

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::UdpConfig;
use pumice_model::settings::CopyMode;
use pumice_platform::udp::PortError;
use pumice_transport::types::Gid;

use super::looped::LoopedGroups;
use super::requests::Requests;
use super::socket_polling::SocketPolling;
use super::{
    LastReceiver, LastSeries, PendingOrders, PollState, PortCounting, PortIdentity, Relays, RepairState,
    SharedPort,
};
use crate::backlog::neighbours::NeighbourTables;
use crate::backlog::{Backlog, OwnEntry};
use crate::files::runtime_folders::{self, FoundFolder};
use crate::files::{folder, foreign_folder};
use crate::members::error::SharingError;
use crate::members::member::{Member, Members};
use crate::members::member_index::MemberIndex;
use crate::members::progress::IdlePollTimes;
use crate::members::{holders, process};
use crate::registry::published;
use crate::registry::published::Published;
use crate::registry::services::Services;
use crate::registry::{Loaded, Registry};
use crate::relay::Relay;
use crate::relay::command_queue::CommandQueue;
use crate::relay::local::Local;
use crate::same_host::{NoRings, SameHost};
use crate::shared_port::membership::Membership;
use crate::shared_port::memory_folder::MemoryFolder;
use crate::system::medium::Medium as _;
use crate::system::{self, GroupPort};

/// Time during which a socket that no registry lists is taken for that of a process that is being killed.
const LEAVING_TIMEOUT: Duration = Duration::from_secs(1);
const LEAVING_RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// Configuration of a [`SharedPort`].
#[derive(Debug, Clone)]
pub struct SharedPortConfig {
    /// UDP port to open; `reuse_port` is taken as set.
    pub udp: UdpConfig,
    /// Folder of the registry, in place of the user's runtime folder: for tests. All processes that share a
    /// port have to name the same one.
    pub folder: Option<PathBuf>,
    /// All batches go by UDP, also to processes of this host.
    pub udp_only: bool,
    /// Way in which long batches are copied into rings.
    pub copy: CopyMode,
    /// The process has several devices: each counts in a file that is named after its address.
    pub counts_apart: bool,
    /// Addresses of the device's ports, if it has two: each counts in a file of its address, and services are
    /// bound at these only.
    pub ports: Vec<IpAddr>,
}

impl SharedPortConfig {
    /// Creates the configuration of a UDP port that is shared through the user's registry, without rings.
    pub fn new(udp: UdpConfig) -> SharedPortConfig {
        SharedPortConfig {
            udp,
            folder: None,
            udp_only: true,
            copy: CopyMode::Auto,
            counts_apart: false,
            ports: Vec::new(),
        }
    }
}

impl SharedPort {
    /// Opens the port and joins the processes that have it.
    ///
    /// # Errors
    /// See [`SharingError`].
    pub fn open(config: &SharedPortConfig) -> Result<SharedPort, SharingError> {
        let port = config.udp.port;
        if port == 0 {
            return Err(SharingError::NoPort);
        }
        let begun = system::now();
        loop {
            let refusal = match SharedPort::join_somewhere(config) {
                Err(refusal) if may_pass(&refusal) => refusal,
                other => return other,
            };
            if system::now().saturating_duration_since(begun) > LEAVING_TIMEOUT {
                return Err(refusal);
            }
            system::sleep(LEAVING_RETRY_INTERVAL);
        }
    }

    /// Joins the processes that have the port, in the folder where their registry is.
    fn join_somewhere(config: &SharedPortConfig) -> Result<SharedPort, SharingError> {
        if let Some(folder) = &config.folder {
            return SharedPort::join(config, folder, MemoryFolder::Registry(folder.clone()));
        }
        let port = config.udp.port;
        let join = |folder: &Path| SharedPort::join(config, folder, MemoryFolder::of(folder, port));
        let FoundFolder { folder, notice } = runtime_folders::find()?;
        let refusal = match join(&folder) {
            Err(refusal @ SharingError::OtherRegistry { .. }) => refusal,
            Ok(mut joined) => {
                joined.identity.notice = notice;
                return Ok(joined);
            }
            Err(other) => return Err(other),
        };
        // The processes that have the port were given, or have found, another folder.
        for other in runtime_folders::others(&folder, &folder::file_name(port)) {
            if let Ok(mut joined) = join(&other) {
                joined.identity.notice = Some(format!(
                    "processes that share UDP port {port} have their registry in {}, and not in {}: this \
                    one joins them \
                     there; set XDG_RUNTIME_DIR of all processes to one folder",
                    other.display(),
                    folder.display()
                ));
                return Ok(joined);
            }
        }
        let Some(foreign_folder) = foreign_folder::find(port, config.udp.address) else {
            return Err(refusal);
        };
        let Ok(mut joined) = join(&foreign_folder.folder.opened().proc_path()) else { return Err(refusal) };
        joined.identity.notice = Some(format!(
            "processes that share UDP port {port} have their registry where only they see it: this one \
            joins them through \
             process {}; set XDG_RUNTIME_DIR of all processes to one folder that all of them see",
            foreign_folder.pid
        ));
        joined._foreign_folder = Some(foreign_folder.folder);
        Ok(joined)
    }

    /// Joins the processes whose registry is in `folder`.
    fn join(
        config: &SharedPortConfig,
        folder: &Path,
        memory: MemoryFolder,
    ) -> Result<SharedPort, SharingError> {
        let port = config.udp.port;
        let registry = Registry::open(folder, port)?;
        registry.lock_patiently()?;
        // Returning early closes the registry and releases the locks.
        let Loaded { mut members, unlisted, .. } = registry.load(&[])?;
        let (index, relay) = claim(&registry, &mut members, &unlisted, config.udp.address)?;
        let foreign = unlisted.is_empty() && is_taken(&members, &config.udp);
        let udp = GroupPort::bind(&UdpConfig { reuse_port: true, ..config.udp.clone() })
            .map_err(|error| refusal(error, port))?;
        let member = describe(&udp, index)?;
        if foreign || unlisted.is_empty() && has_other_namespace_member(&members, &member, port) {
            let (address, registry) = (member.address, registry.path().to_owned());
            return Err(SharingError::OtherRegistry { address, port, registry });
        }
        let membership = Membership::join(registry, &mut members, member, port)?;
        let mut services = Services::new(folder, port);
        services.forget_member(index);
        let stopped = membership.steer(udp.steered_socket(), &members, &mut services);
        membership.registry().unlock();
        for stranger in unlisted {
            relay.send_repair_request(membership.registry(), stranger);
        }
        let incarnation = member.inode << 32 | u64::from(member.pid);
        let own_entry = OwnEntry { member: index, address: udp.address(), incarnation };
        let backlog = backlog_in(folder, &udp, own_entry);
        backlog.iter().for_each(|backlog| stopped.iter().for_each(|member| backlog.note_bypassed(*member)));
        let published = published_in(folder, config, index);
        let own = config.ports.iter().copied().map(Gid::from).collect();
        let none = NoRings::among(config.udp_only, backlog.is_some());
        Ok(SharedPort {
            medium: udp,
            backlog,
            counting: PortCounting { published, counters: Arc::default(), device: None },
            identity: PortIdentity {
                own,
                process: index.process(),
                local: Local::new(index.process()),
                name: folder::file_name(port),
                looped: LoopedGroups::default(),
                notice: None,
            },
            relays: Relays { relay, adopted: Vec::new() },
            membership,
            services,
            polling: PollState {
                receives: 0,
                emptied_ns: None,
                relay_due: false,
                relay_is_next: false,
                idle_poll_times: IdlePollTimes::default(),
                socket_polling: SocketPolling::default(),
            },
            orders: PendingOrders {
                requests: Requests::default(),
                command_queue: CommandQueue::default(),
                partitions: Vec::new(),
            },
            memory,
            _foreign_folder: None,
            repair: RepairState { repair_due: false, settled: false, evidence: None, last_repair_ns: None },
            same_host: SameHost::new(index, incarnation, none, config.copy),
            receiver: LastReceiver { last_receiver: None, last_series: LastSeries::default() },
        })
    }
}

/// Reports whether the obstacle may be gone in a moment: a process that is being killed loses its locks
/// before its socket, and a process that opens the port first tries to get it exclusively.
fn may_pass(refusal: &SharingError) -> bool {
    match refusal {
        SharingError::OtherRegistry { .. } => true,
        SharingError::Taken { holder, own_uid, .. } => {
            holder.is_none_or(|holder| holder.uid == *own_uid && holder.inode != 0)
        }
        _ => false,
    }
}

/// Claims the next free member index for a socket that is bound to `address`, and opens the relay that
/// belongs to it.
fn claim(
    registry: &Registry,
    members: &mut Members,
    unlisted: &[MemberIndex],
    address: IpAddr,
) -> Result<(MemberIndex, Relay), SharingError> {
    let mut failure = None;
    let claimed = members.choose(address, |member| {
        // The registry does not know the address of a process that it does not list.
        let is_strangers = unlisted.iter().any(|stranger| stranger.process() == member.process());
        if failure.is_some() || is_strangers || !registry.claim(member) {
            return None;
        }
        match Relay::bind(registry.sockets(), member) {
            Ok(relay) => return Some(relay),
            // A file that cannot be removed has the name; another member index is tried.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => failure = Some(error),
        }
        registry.release(member);
        None
    });
    match (claimed, failure) {
        (Some(claimed), _) => Ok(claimed),
        (None, Some(source)) => {
            let path = registry.path().parent().map(Path::to_owned);
            Err(SharingError::Os { step: "open the socket for forwarded packets in", path, source })
        }
        (None, None) => Err(SharingError::Full { registry: registry.path().to_owned(), address }),
    }
}

/// Opens the table of the backlogs of this port's processes.
fn backlog_in(folder: &Path, udp: &GroupPort, own: OwnEntry) -> Option<Backlog> {
    let port = udp.port();
    let file = folder::open(folder, &folder::backlog_name(port)).ok()?;
    let neighbours = NeighbourTables::new(folder.to_owned(), port);
    Backlog::open(&file, neighbours, own, system::host_addresses(), udp.receive_buffer_bytes()).ok()
}

/// Opens the records in which a process publishes its counters: one, or one for each port of a device with
/// two.
fn published_in(folder: &Path, config: &SharedPortConfig, member: MemberIndex) -> Vec<Published> {
    if member.bank() != 0 && !config.counts_apart {
        // The file of all addresses has one record for each process index.
        return Vec::new();
    }
    let process = member.process();
    let of = |own: Option<IpAddr>| {
        let file = published::open(folder, config.udp.port, own).ok()?;
        Published::open(file, process).ok()
    };
    if config.ports.is_empty() {
        return of(config.counts_apart.then_some(config.udp.address)).into_iter().collect();
    }
    // All of the ports or none: they are told apart by their order.
    config.ports.iter().map(|port| of(Some(*port))).collect::<Option<_>>().unwrap_or_default()
}

fn describe(udp: &GroupPort, index: MemberIndex) -> Result<Member, SharingError> {
    let failed = |source| SharingError::Os { step: "look at the UDP socket", path: None, source };
    let inode = system::socket_inode(udp).map_err(failed)?;
    let pid = system::process_id();
    Ok(Member {
        index,
        pid,
        pid_namespace: process::pid_namespace(),
        start_ticks: process::start_ticks(pid).unwrap_or(0),
        address: udp.address(),
        inode,
    })
}

fn refusal(error: PortError, port: u16) -> SharingError {
    let PortError::Taken { address, .. } = error else { return SharingError::Port(error) };
    let holder = holders::holders(port).and_then(|all| holders::conflicting_holder(&all, address));
    SharingError::Taken { address, port, holder, own_uid: process::effective_uid() }
}

/// Reports whether a process that the registry does not list has the port, while none that it lists is in the
/// way: the kernel says so, even where there is no /proc.
fn is_taken(members: &Members, config: &UdpConfig) -> bool {
    let known = members.iter().any(|member| holders::overlap(member.address, config.address));
    !known && system::is_port_taken(config)
}

/// Reports whether the group of a new member has a socket that the registry does not list: its processes
/// would have other process indices and another order.
fn has_other_namespace_member(members: &Members, new: &Member, port: u16) -> bool {
    let known = |inode| inode == new.inode || members.iter().any(|member| member.inode == inode);
    holders::holders(port)
        .is_some_and(|all| all.iter().any(|holder| holder.address == new.address && !known(holder.inode)))
}
