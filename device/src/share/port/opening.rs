//! Opening a shared port: a slot of the registry, the sockets that belong to it, and a place in the group.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::SharedPort;
use crate::interface::interfaces;
use crate::port::{Port, PortError, UdpConfig, UdpPort};
use crate::share::backlog::Backlog;
use crate::share::local::Local;
use crate::share::members::{Member, Members};
use crate::share::membership::Membership;
use crate::share::neighbours::Neighbours;
use crate::share::registry::{Loaded, Registry};
use crate::share::relay::Relay;
use crate::share::services::Services;
use crate::share::{ShareError, folder, holders, process};

/// How long opening waits for the registry.
const OPEN_PATIENCE: Duration = Duration::from_secs(5);

/// How to open a [`SharedPort`].
#[derive(Debug, Clone)]
pub struct ShareConfig {
    /// The UDP port; `reuse_port` is taken as set.
    pub udp: UdpConfig,
    /// Where the registry is, instead of the user's folder for such things: for tests. All processes that
    /// share a port have to name the same one.
    pub folder: Option<PathBuf>,
}

impl ShareConfig {
    /// A UDP port shared through the user's registry.
    pub fn new(udp: UdpConfig) -> ShareConfig {
        ShareConfig { udp, folder: None }
    }
}

impl SharedPort {
    /// Opens the port and joins those who have it.
    ///
    /// # Errors
    /// See [`ShareError`].
    pub fn open(config: &ShareConfig) -> Result<SharedPort, ShareError> {
        let port = config.udp.port;
        if port == 0 {
            return Err(ShareError::NoPort);
        }
        let folder = config.folder.clone().unwrap_or_else(folder::default_folder);
        let domains = config.folder.clone().unwrap_or_else(|| folder::memory_folder(&folder));
        let registry = Registry::open(&folder, port)?;
        registry.lock(OPEN_PATIENCE)?;
        // Returning early closes the registry, and with it go the locks.
        let Loaded { mut members, strangers, .. } = registry.load(&[])?;
        let stem = relay_stem(&registry, port)?;
        let (slot, relay) = claim(&registry, &mut members, &stem)?;
        let udp_config = UdpConfig { reuse_port: true, ..config.udp.clone() };
        let udp = UdpPort::bind(&udp_config).map_err(|error| refusal(error, port))?;
        let member = describe(&udp, slot)?;
        if strangers.is_empty() && has_foreigner(&members, &member, port) {
            return Err(ShareError::OtherRegistry {
                address: member.address,
                port,
                registry: registry.path().to_owned(),
            });
        }
        let membership = Membership::join(registry, &mut members, member, port)?;
        // A kernel that does not take the program leaves everything to forwarding.
        membership.steer(udp.as_raw_fd(), &members);
        let mut services = Services::new(&folder, port);
        services.forget_slot(slot);
        membership.registry().unlock();
        for stranger in strangers {
            relay.send_look(stranger);
        }
        let backlog = folder::open(&folder, &folder::backlog_name(port)).ok().and_then(|file| {
            let buffer_bytes = udp.limits().receive_buffer_bytes;
            let neighbours = Neighbours::new(folder.clone(), port);
            Backlog::open(&file, neighbours, slot, udp.address(), host_addresses(), buffer_bytes).ok()
        });
        Ok(SharedPort {
            udp,
            backlog,
            relay,
            membership,
            services,
            slot,
            adopted: Vec::new(),
            local: Local::new(slot),
            name: folder::file_name(port),
            domains,
            stem,
            receives: 0,
            relay_due: false,
            mend_due: false,
            settled: false,
            evidence: None,
            last_mend_ns: None,
            counters: Arc::default(),
            device: None,
        })
    }
}

/// What the names of the sockets of all who share a registry begin with.
pub(in crate::share) fn relay_stem(registry: &Registry, port: u16) -> Result<String, ShareError> {
    Ok(format!("pumice-{}-{port}-{}", process::effective_uid(), registry.identity()?))
}

/// The next free slot, and the relay that belongs to it.
fn claim(registry: &Registry, members: &mut Members, stem: &str) -> Result<(u8, Relay), ShareError> {
    let mut failure = None;
    let claimed = members.choose_slot(|slot| {
        if failure.is_some() || !registry.claim(slot) {
            return None;
        }
        match Relay::bind(stem, slot) {
            Ok(relay) => return Some(relay),
            // Somebody is in the way, perhaps out of malice: there are other slots.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => failure = Some(error),
        }
        registry.release(slot);
        None
    });
    match (claimed, failure) {
        (Some(claimed), _) => Ok(claimed),
        (None, Some(source)) => {
            Err(ShareError::Os { step: "open the socket for forwarded packets", path: None, source })
        }
        (None, None) => Err(ShareError::Full { registry: registry.path().to_owned() }),
    }
}

fn describe(udp: &UdpPort, slot: u8) -> Result<Member, ShareError> {
    let failed = |source| ShareError::Os { step: "look at the UDP socket", path: None, source };
    let socket = udp.as_fd().try_clone_to_owned().map_err(failed)?;
    let about = std::fs::File::from(socket).metadata().map_err(failed)?;
    let pid = std::process::id();
    Ok(Member {
        slot,
        pid,
        pid_namespace: process::pid_namespace(),
        start_ticks: process::start_ticks(pid).unwrap_or(0),
        address: udp.address(),
        inode: std::os::unix::fs::MetadataExt::ino(&about),
    })
}

fn refusal(error: PortError, port: u16) -> ShareError {
    let PortError::Taken { address, .. } = error else { return ShareError::Port(error) };
    let holder = holders::holders(port).and_then(|all| holders::in_the_way(&all, address));
    ShareError::Taken { address, port, holder, own_uid: process::effective_uid() }
}

/// Whether the group of a new member has a socket that the registry does not know: its processes would
/// have other ideas of slots and order.
fn has_foreigner(members: &Members, new: &Member, port: u16) -> bool {
    let known = |inode| inode == new.inode || members.iter().any(|member| member.inode == inode);
    holders::holders(port)
        .is_some_and(|all| all.iter().any(|holder| holder.address == new.address && !known(holder.inode)))
}

fn host_addresses() -> Vec<IpAddr> {
    let interfaces = interfaces().unwrap_or_default();
    interfaces.into_iter().flat_map(|interface| interface.addresses).map(|(address, _)| address).collect()
}
