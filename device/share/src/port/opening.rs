//! Opening a shared port: a process index from the registry, the sockets that belong to it, and a place in
//! the group.

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use pumice_ports::{PortError, UdpConfig};
use pumice_transport::types::Gid;

use super::looking::Looking;
use super::looped::LoopedGroups;
use super::requests::Requests;
use super::{LastSeries, SharedPort};
use crate::backlog::{Backlog, OwnEntry};
use crate::local::Local;
use crate::medium::Medium as _;
use crate::member_index::MemberIndex;
use crate::members::{Member, Members};
use crate::membership::Membership;
use crate::memory_folder::MemoryFolder;
use crate::neighbours::Neighbours;
use crate::orders::Orders;
use crate::progress::Looks;
use crate::published::Published;
use crate::registry::{Loaded, Registry};
use crate::relay::Relay;
use crate::runtime_folders::{self, FoundFolder};
use crate::same_host::{NoRings, SameHost};
use crate::services::Services;
use crate::system::{self, GroupPort};
use crate::{ShareError, elsewhere, folder, holders, process, published};

/// For so long a socket that no registry knows is taken for that of a process that is being killed.
const FAREWELL_PATIENCE: Duration = Duration::from_secs(1);
const FAREWELL_INTERVAL: Duration = Duration::from_millis(10);

/// How to open a [`SharedPort`].
#[derive(Debug, Clone)]
pub struct ShareConfig {
    /// The UDP port; `reuse_port` is taken as set.
    pub udp: UdpConfig,
    /// Where the registry is, instead of the user's folder for such things: for tests. All processes that
    /// share a port have to name the same one.
    pub folder: Option<PathBuf>,
    /// All batches go by UDP, also to processes of this host.
    pub udp_only: bool,
    /// The process has several devices: each counts in a file of its address.
    pub counts_apart: bool,
    /// The addresses of the device's ports, if it has two: each counts in a file of its address, and services
    /// are bound at these only.
    pub ports: Vec<IpAddr>,
}

impl ShareConfig {
    /// A UDP port shared through the user's registry, without rings.
    pub fn new(udp: UdpConfig) -> ShareConfig {
        ShareConfig { udp, folder: None, udp_only: true, counts_apart: false, ports: Vec::new() }
    }
}

impl SharedPort {
    /// Opens the port and joins the processes that have it.
    ///
    /// # Errors
    /// See [`ShareError`].
    pub fn open(config: &ShareConfig) -> Result<SharedPort, ShareError> {
        let port = config.udp.port;
        if port == 0 {
            return Err(ShareError::NoPort);
        }
        let begun = system::now();
        loop {
            let refusal = match SharedPort::join_somewhere(config) {
                Err(refusal) if may_pass(&refusal) => refusal,
                other => return other,
            };
            if system::now().saturating_duration_since(begun) > FAREWELL_PATIENCE {
                return Err(refusal);
            }
            system::sleep(FAREWELL_INTERVAL);
        }
    }

    /// Joins the processes that have the port, in whichever folder they are.
    fn join_somewhere(config: &ShareConfig) -> Result<SharedPort, ShareError> {
        if let Some(folder) = &config.folder {
            return SharedPort::join(config, folder, MemoryFolder::Registry(folder.clone()));
        }
        let port = config.udp.port;
        let join = |folder: &Path| SharedPort::join(config, folder, MemoryFolder::of(folder, port));
        let FoundFolder { folder, notice } = runtime_folders::find()?;
        let refusal = match join(&folder) {
            Err(refusal @ ShareError::OtherRegistry { .. }) => refusal,
            Ok(mut joined) => {
                joined.notice = notice;
                return Ok(joined);
            }
            Err(other) => return Err(other),
        };
        // The processes that have the port were told another folder, or found another one.
        for other in runtime_folders::others(&folder, &folder::file_name(port)) {
            if let Ok(mut joined) = join(&other) {
                joined.notice = Some(format!(
                    "processes that share UDP port {port} have their registry in {}, and not in {}: this \
                    one joins them \
                     there; set XDG_RUNTIME_DIR of all processes to one folder",
                    other.display(),
                    folder.display()
                ));
                return Ok(joined);
            }
        }
        let Some(elsewhere) = elsewhere::find(port, config.udp.address) else { return Err(refusal) };
        let Ok(mut joined) = join(&elsewhere.folder.opened().way()) else { return Err(refusal) };
        joined.notice = Some(format!(
            "processes that share UDP port {port} have their registry where only they see it: this one \
            joins them through \
             process {}; set XDG_RUNTIME_DIR of all processes to one folder that all of them see",
            elsewhere.pid
        ));
        joined._elsewhere = Some(elsewhere.folder);
        Ok(joined)
    }

    /// Joins the processes whose registry is in `folder`.
    fn join(config: &ShareConfig, folder: &Path, memory: MemoryFolder) -> Result<SharedPort, ShareError> {
        let port = config.udp.port;
        let registry = Registry::open(folder, port)?;
        registry.lock_patiently()?;
        // Returning early closes the registry, and with it go the locks.
        let Loaded { mut members, strangers, .. } = registry.load(&[])?;
        let (index, relay) = claim(&registry, &mut members, &strangers, config.udp.address)?;
        let foreign = strangers.is_empty() && is_taken(&members, &config.udp);
        let udp = GroupPort::bind(&UdpConfig { reuse_port: true, ..config.udp.clone() })
            .map_err(|error| refusal(error, port))?;
        let member = describe(&udp, index)?;
        if foreign || strangers.is_empty() && has_foreigner(&members, &member, port) {
            return Err(ShareError::OtherRegistry {
                address: member.address,
                port,
                registry: registry.path().to_owned(),
            });
        }
        let membership = Membership::join(registry, &mut members, member, port)?;
        let mut services = Services::new(folder, port);
        services.forget_member(index);
        let stopped = membership.steer(udp.steered_socket(), &members, &mut services);
        membership.registry().unlock();
        for stranger in strangers {
            relay.send_look(membership.registry(), stranger);
        }
        let incarnation = member.inode << 32 | u64::from(member.pid);
        let own_entry = OwnEntry { member: index, address: udp.address(), incarnation };
        let backlog = backlog_in(folder, &udp, own_entry);
        if let Some(backlog) = &backlog {
            stopped.into_iter().for_each(|member| backlog.note_bypassed(member));
        }
        let published = published_in(folder, config, index);
        let own = config.ports.iter().copied().map(Gid::from).collect();
        let none = NoRings::among(config.udp_only, backlog.is_some());
        Ok(SharedPort {
            medium: udp,
            backlog,
            published,
            own,
            relay,
            membership,
            services,
            process: index.process(),
            adopted: Vec::new(),
            local: Local::new(index.process()),
            looks: Looks::default(),
            requests: Requests::default(),
            name: folder::file_name(port),
            memory,
            notice: None,
            _elsewhere: None,
            receives: 0,
            emptied_ns: None,
            relay_due: false,
            relay_is_next: false,
            repair_due: false,
            settled: false,
            evidence: None,
            last_repair_ns: None,
            looped: LoopedGroups::default(),
            same_host: SameHost::new(index, incarnation, none),
            last_found: None,
            last_series: LastSeries::default(),
            looking: Looking::default(),
            counters: Arc::default(),
            device: None,
            orders: Orders::default(),
        })
    }
}

/// Whether what is in the way may be gone in a moment: a process that is being killed loses its locks before
/// its socket, and one that opens the port asks for it alone first.
fn may_pass(refusal: &ShareError) -> bool {
    match refusal {
        ShareError::OtherRegistry { .. } => true,
        ShareError::Taken { holder, own_uid, .. } => {
            holder.is_none_or(|holder| holder.uid == *own_uid && holder.inode != 0)
        }
        _ => false,
    }
}

/// The next free member index for a socket that is bound to `address`, and the relay that belongs to it.
fn claim(
    registry: &Registry,
    members: &mut Members,
    strangers: &[MemberIndex],
    address: IpAddr,
) -> Result<(MemberIndex, Relay), ShareError> {
    let mut failure = None;
    let claimed = members.choose(address, |member| {
        // What a stranger's address is, the registry does not know.
        let is_strangers = strangers.iter().any(|stranger| stranger.process() == member.process());
        if failure.is_some() || is_strangers || !registry.claim(member) {
            return None;
        }
        match Relay::bind(registry.sockets(), member) {
            Ok(relay) => return Some(relay),
            // Something that cannot be removed is in the way: there are other member indices.
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
            Err(ShareError::Os { step: "open the socket for forwarded packets in", path, source })
        }
        (None, None) => Err(ShareError::Full { registry: registry.path().to_owned(), address }),
    }
}

/// What the processes of this port have in flight.
fn backlog_in(folder: &Path, udp: &GroupPort, own: OwnEntry) -> Option<Backlog> {
    let port = udp.port();
    let file = folder::open(folder, &folder::backlog_name(port)).ok()?;
    let neighbours = Neighbours::new(folder.to_owned(), port);
    Backlog::open(&file, neighbours, own, system::host_addresses(), udp.receive_buffer_bytes()).ok()
}

/// The record of what a process counts; of a device with two ports, one of each.
fn published_in(folder: &Path, config: &ShareConfig, member: MemberIndex) -> Vec<Published> {
    if member.bank() != 0 && !config.counts_apart {
        // The file of all addresses has one record for each process index.
        return Vec::new();
    }
    let process = member.process();
    let of = |own: Option<IpAddr>| {
        let file = folder::open(folder, &published::file_name(config.udp.port, own)).ok()?;
        Published::open(file, process).ok()
    };
    if config.ports.is_empty() {
        return of(config.counts_apart.then_some(config.udp.address)).into_iter().collect();
    }
    // All of them or none: they are told apart by their order.
    config.ports.iter().map(|port| of(Some(*port))).collect::<Option<_>>().unwrap_or_default()
}

fn describe(udp: &GroupPort, index: MemberIndex) -> Result<Member, ShareError> {
    let failed = |source| ShareError::Os { step: "look at the UDP socket", path: None, source };
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

fn refusal(error: PortError, port: u16) -> ShareError {
    let PortError::Taken { address, .. } = error else { return ShareError::Port(error) };
    let holder = holders::holders(port).and_then(|all| holders::in_the_way(&all, address));
    ShareError::Taken { address, port, holder, own_uid: process::effective_uid() }
}

/// Whether a process that the registry does not know has the port, where none that it knows is in the way:
/// the kernel says so, even where there is no /proc.
fn is_taken(members: &Members, config: &UdpConfig) -> bool {
    let known = members.iter().any(|member| holders::overlap(member.address, config.address));
    !known && system::is_port_taken(config)
}

/// Whether the group of a new member has a socket that the registry does not know: its processes would
/// have other ideas of process indices and order.
fn has_foreigner(members: &Members, new: &Member, port: u16) -> bool {
    let known = |inode| inode == new.inode || members.iter().any(|member| member.inode == inode);
    holders::holders(port)
        .is_some_and(|all| all.iter().any(|holder| holder.address == new.address && !known(holder.inode)))
}
