//! A UDP port that is shared with other processes.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pumice_transport::mad::ServiceId;
use pumice_transport::types::Gid;

use super::backlog::Backlog;
use super::local::{Local, is_only_for, names_srq_of};
use super::members::{Member, Members};
use super::membership::Membership;
use super::neighbours::Neighbours;
use super::registry::{Loaded, Registry};
use super::relay::{Incoming, Relay, Sent};
use super::services::Services;
use super::steering::SLOT_OFFSET;
use super::{ShareError, folder, holders, process, report};
use crate::counters::Counters;
use crate::gsi::{DirectoryError, HandedOn, Occupant, ServiceDirectory, ServiceEntry};
use crate::interface::interfaces;
use crate::port::{Commons, Port, PortError, PortLimits, Received, Train, TransmitError, UdpConfig, UdpPort};

/// How long opening waits for the registry.
const OPEN_PATIENCE: Duration = Duration::from_secs(5);
/// Receives between two looks at the relay while nobody says that it is readable: a look costs a system call.
const RELAY_INTERVAL: u32 = 64;
/// Time between two attempts to mend the steering.
const MEND_INTERVAL_NS: u64 = 10_000_000;
/// Stray packets further apart have different causes.
const INCIDENT_NS: u64 = 1_000_000_000;
/// Trains that are still handed on while the port is being closed.
const LAST_TRAINS: usize = 64;

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

/// What sharing did so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ShareStats {
    /// Runs of packets handed to the process they are for.
    pub forwarded: u64,
    /// Those lost because that process did not keep up.
    pub forward_dropped: u64,
    /// Runs of packets taken over from other processes.
    pub taken_over: u64,
    /// Datagrams of other users, or not of this process, or malformed: dropped.
    pub rejected: u64,
    /// Times that this process looked at the registry to mend the steering.
    pub mended: u64,
}

/// The numbers behind [`ShareStats`], which outlive the port and may be read from any thread.
#[derive(Debug, Default)]
pub struct ShareCounters {
    forwarded: AtomicU64,
    forward_dropped: AtomicU64,
    taken_over: AtomicU64,
    rejected: AtomicU64,
    mended: AtomicU64,
}

impl ShareCounters {
    /// The numbers now.
    pub fn stats(&self) -> ShareStats {
        ShareStats {
            forwarded: self.forwarded.load(Ordering::Relaxed),
            forward_dropped: self.forward_dropped.load(Ordering::Relaxed),
            taken_over: self.taken_over.load(Ordering::Relaxed),
            rejected: self.rejected.load(Ordering::Relaxed),
            mended: self.mended.load(Ordering::Relaxed),
        }
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// A [`UdpPort`] whose UDP port other processes of the same user have as well.
///
/// **Invariant**: the handler of [`receive`](Port::receive) sees packets of this process's slot only, apart
/// from those that are nobody's, queue pair 1's and multicast.
#[derive(Debug)]
pub struct SharedPort {
    // In the order of closing: the registry is told last.
    udp: UdpPort,
    /// None where the folder does not let us map a file: nothing is held back then.
    backlog: Option<Backlog>,
    relay: Relay,
    membership: Membership,
    services: Services,
    slot: u8,
    /// What belongs to the slots of processes that have gone, whose packets come here.
    adopted: Vec<(u8, Relay)>,
    local: Local,
    name: String,
    /// Where shared XRC domains are.
    domains: PathBuf,
    stem: String,
    receives: u32,
    /// The relay may have something.
    relay_due: bool,
    /// The registry should be looked at.
    mend_due: bool,
    /// Everything that came before the steering was mended last has been taken: what comes now was steered
    /// by the program that the registry implies.
    settled: bool,
    /// Top byte of the number in a packet that came to the wrong process though things were settled.
    evidence: Option<u8>,
    last_mend_ns: Option<u64>,
    counters: Arc<ShareCounters>,
    /// What the device behind the port counts, for those who ask.
    device: Option<Arc<Counters>>,
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

    /// The slot of this port, 1 to 254: the top byte of its queue pair numbers.
    pub fn slot(&self) -> u8 {
        self.slot
    }

    /// The UDP port itself.
    pub fn udp(&self) -> &UdpPort {
        &self.udp
    }

    /// The registry file.
    pub fn registry(&self) -> PathBuf {
        self.membership.registry().path().to_owned()
    }

    /// What sharing does; keep it to ask after the port was given away.
    pub fn counters(&self) -> &Arc<ShareCounters> {
        &self.counters
    }

    /// All addresses of a port that has one are that one.
    fn at_own_address(&self, entry: &ServiceEntry) -> ServiceEntry {
        let bound = self.membership.address();
        let own = (!bound.is_unspecified()).then(|| Gid::from(bound));
        ServiceEntry { local: entry.local.or(own), ..*entry }
    }

    /// Takes a train from the relay. True if anything was taken.
    fn receive_relayed(&mut self, handler: &mut dyn FnMut(&Received<'_>)) -> bool {
        self.relay_due = match self.relay.receive() {
            Incoming::Nothing => false,
            Incoming::Look => {
                self.mend_due = true;
                true
            }
            Incoming::Ask(asker) => {
                let text = report::encode(self.slot, &self.counters.stats(), self.device.as_deref());
                // Who does not wait for the answer asks again.
                let _ = self.relay.answer(asker, &text);
                true
            }
            Incoming::Train(received)
                if is_for(&received, &self.membership, &self.local, self.udp.port()) =>
            {
                count(&self.counters.taken_over);
                took(self.backlog.as_ref(), &received);
                handler(&received);
                true
            }
            Incoming::Train(_) | Incoming::Rejected => {
                count(&self.counters.rejected);
                true
            }
        };
        let mut more = self.relay_due;
        for (_, relay) in &mut self.adopted {
            match relay.receive() {
                Incoming::Nothing => {}
                Incoming::Train(received)
                    if is_for(&received, &self.membership, &self.local, self.udp.port()) =>
                {
                    count(&self.counters.taken_over);
                    took(self.backlog.as_ref(), &received);
                    handler(&received);
                    more = true;
                }
                Incoming::Look | Incoming::Ask(_) | Incoming::Train(_) | Incoming::Rejected => {
                    count(&self.counters.rejected);
                    more = true;
                }
            }
        }
        self.relay_due = more;
        more
    }

    fn receive_udp(&mut self, now_ns: u64, handler: &mut dyn FnMut(&Received<'_>)) -> bool {
        let SharedPort { udp, relay, local, counters, backlog, .. } = self;
        let backlog = backlog.as_ref();
        let offered = backlog.map(Backlog::offered);
        let mut route = Route { local, relay, counters, backlog, stray: None };
        let taken = udp.receive(now_ns, &mut |received| route.route(received, handler));
        if !taken && let (Some(backlog), Some(offered)) = (backlog, offered) {
            backlog.all_taken(offered);
        }
        if let Some(byte) = route.stray {
            self.mend_due = true;
            // One that was steered before the last mending proves nothing.
            self.evidence = Some(byte).filter(|_| self.settled).or(self.evidence);
        }
        taken
    }

    /// Looks at the registry, unless that was done just now.
    fn mend(&mut self, now_ns: u64) {
        let since_ns = self.last_mend_ns.map(|last_ns| now_ns.saturating_sub(last_ns));
        if since_ns.is_some_and(|since_ns| since_ns < MEND_INTERVAL_NS) {
            return;
        }
        // The first look only puts the registry's program in force, which somebody may have replaced.
        let incident = since_ns.is_some_and(|since_ns| since_ns < INCIDENT_NS);
        let evidence = self.evidence.take().filter(|_| incident);
        self.last_mend_ns = Some(now_ns);
        let Some(strangers) = self.membership.mend(self.udp.as_raw_fd(), evidence) else { return };
        self.mend_due = false;
        self.settled = false;
        count(&self.counters.mended);
        for stranger in strangers {
            self.relay.send_look(stranger);
        }
    }
}

impl Port for SharedPort {
    fn transmit(&mut self, now_ns: u64, train: &Train<'_>) -> Result<(), TransmitError> {
        let Some(backlog) = &mut self.backlog else { return self.udp.transmit(now_ns, train) };
        let destination = train.path.flow.destination;
        let slot = train.bytes.get(SLOT_OFFSET).copied().unwrap_or(0);
        let charge = backlog.offer(destination, slot, train.bytes, train.segment_bytes);
        let sent = self.udp.transmit(now_ns, train);
        if let (Err(_), Some(charge)) = (&sent, charge) {
            charge.retract();
        }
        sent
    }

    fn admits(&mut self, now_ns: u64, destination: IpAddr, slot: u8) -> bool {
        self.backlog.as_mut().is_none_or(|backlog| backlog.admits(now_ns, destination, slot))
    }

    fn receive(&mut self, now_ns: u64, handler: &mut dyn FnMut(&Received<'_>)) -> bool {
        self.receives = self.receives.wrapping_add(1);
        if self.receives.is_multiple_of(RELAY_INTERVAL) && self.receive_relayed(handler) {
            return true;
        }
        let mut taken = self.receive_udp(now_ns, handler);
        if !taken {
            self.settled = true;
            if self.relay_due {
                taken = self.receive_relayed(handler);
            }
        }
        if self.mend_due {
            self.mend(now_ns);
        }
        taken
    }

    fn limits(&self) -> PortLimits {
        self.udp.limits()
    }

    fn descriptors(&self) -> Vec<RawFd> {
        let mut all = self.udp.descriptors();
        all.push(self.relay.as_raw_fd());
        all.extend(self.adopted.iter().map(|(_, relay)| relay.as_raw_fd()));
        all
    }

    fn join(&mut self, group: IpAddr) -> io::Result<()> {
        self.udp.join(group)
    }

    fn leave(&mut self, group: IpAddr) -> io::Result<()> {
        self.udp.leave(group)
    }

    fn source_port(&self) -> Option<u16> {
        self.udp.source_port()
    }

    fn woken(&mut self) {
        self.relay_due = true;
    }

    fn observe(&mut self, counters: &Arc<Counters>) {
        self.device = Some(Arc::clone(counters));
    }

    fn forward(&mut self, slot: u8, received: &Received<'_>) -> bool {
        let sent = self.relay.send_train(slot, received);
        note_sent(&self.counters, sent);
        sent == Sent::Done
    }

    fn commons(&self) -> Option<Commons> {
        // Who is on another address is on another device.
        let name = format!("{}-{}", self.name, self.membership.address());
        Some(Commons { folder: self.domains.clone(), name, slot: self.slot })
    }

    fn reserve_slot(&mut self, slot: u8) {
        self.membership.registry().reserve(slot);
    }

    fn adopt_slot(&mut self, slot: u8) -> bool {
        if self.local.contains(slot) {
            return true;
        }
        let fd = self.udp.as_raw_fd();
        let stem = &self.stem;
        let Some(relay) = self.membership.adopt(fd, slot, || Relay::bind(stem, slot).ok()) else {
            return false;
        };
        self.adopted.push((slot, relay));
        self.local.set(slot, true);
        // Others may have sent to the name since it was free.
        self.relay_due = true;
        true
    }

    fn release_slot(&mut self, slot: u8) {
        self.adopted.retain(|(adopted, _)| *adopted != slot);
        if slot != self.slot {
            self.local.set(slot, false);
            self.membership.abandon(slot);
        }
        self.membership.registry().end_reservation(slot);
        self.mend_due = true;
    }

    fn services(&mut self) -> Option<&mut dyn ServiceDirectory> {
        Some(self)
    }
}

impl ServiceDirectory for SharedPort {
    fn publish(&mut self, entry: &ServiceEntry) -> Result<(), DirectoryError> {
        let entry = self.at_own_address(entry);
        self.services.publish(&entry, &self.membership)
    }

    fn withdraw(&mut self, entry: &ServiceEntry) {
        let entry = self.at_own_address(entry);
        self.services.withdraw(&entry, &self.membership);
    }

    fn find(&mut self, service_id: ServiceId, local: Gid) -> Vec<u8> {
        self.services.find(service_id, local, &self.membership)
    }

    fn hand_on(&mut self, slot: u8, received: &Received<'_>) -> HandedOn {
        match self.relay.send_train(slot, received) {
            Sent::Done => {
                note_sent(&self.counters, Sent::Done);
                HandedOn::Done
            }
            Sent::Full => HandedOn::Full,
            Sent::Nobody => HandedOn::Nobody,
        }
    }

    fn occupant(&mut self, slot: u8, address: Gid) -> Occupant {
        self.membership.occupant(slot, address.into())
    }

    fn lives(&mut self, slot: u8, who: u64) -> bool {
        self.membership.lives(slot, who)
    }
}

impl Drop for SharedPort {
    fn drop(&mut self) {
        if self.membership.begin_to_leave(self.udp.as_raw_fd()) {
            // What was steered here for others goes on to them; what was for this process has no receiver.
            for _ in 0..LAST_TRAINS {
                if !self.receive_udp(0, &mut |_| {}) {
                    break;
                }
            }
        }
    }
}

/// Where the packets of a train go.
struct Route<'a> {
    local: &'a Local,
    relay: &'a Relay,
    counters: &'a ShareCounters,
    backlog: Option<&'a Backlog>,
    /// Top byte of the number in the last packet that is another process's.
    stray: Option<u8>,
}

impl Route<'_> {
    fn route(&mut self, received: &Received<'_>, handler: &mut dyn FnMut(&Received<'_>)) {
        // Every socket that joined a group gets the group's datagrams: they are for whoever has them.
        if received.flow.destination.is_multicast() || is_only_for(received, self.local) {
            took(self.backlog, received);
            handler(received);
            return;
        }
        // Trains of ours never mix processes, but a network card may have joined packets that do.
        let segment_bytes = received.segment_bytes.max(1);
        let mut rest = received.bytes;
        while !rest.is_empty() {
            let target = self.target(rest);
            let mut length = segment_bytes;
            while rest.get(length..).is_some_and(|next| !next.is_empty() && self.target(next) == target) {
                length += segment_bytes;
            }
            let (run, next) = rest.split_at_checked(length).unwrap_or((rest, &[]));
            self.hand_on(target, &Received { bytes: run, ..*received }, handler);
            rest = next;
        }
    }

    /// Whose the first packet is: another slot's, or (`None`) for this process to look at.
    fn target(&self, bytes: &[u8]) -> Option<u8> {
        bytes.get(SLOT_OFFSET).copied().filter(|&byte| !self.local.is_local(byte))
    }

    fn hand_on(&mut self, target: Option<u8>, run: &Received<'_>, handler: &mut dyn FnMut(&Received<'_>)) {
        let Some(slot) = target else {
            took(self.backlog, run);
            return handler(run);
        };
        let sent = self.relay.send_train(slot, run);
        note_sent(self.counters, sent);
        match sent {
            Sent::Done | Sent::Full => self.stray = Some(slot),
            // Dropped and counted with other packets for queue pairs that do not exist.
            Sent::Nobody => handler(run),
        }
    }
}

fn took(backlog: Option<&Backlog>, received: &Received<'_>) {
    if let Some(backlog) = backlog
        && !received.flow.destination.is_multicast()
    {
        backlog.took(received.bytes, received.segment_bytes);
    }
}

fn host_addresses() -> Vec<IpAddr> {
    let interfaces = interfaces().unwrap_or_default();
    interfaces.into_iter().flat_map(|interface| interface.addresses).map(|(address, _)| address).collect()
}

fn note_sent(counters: &ShareCounters, sent: Sent) {
    match sent {
        Sent::Done => count(&counters.forwarded),
        Sent::Full => count(&counters.forward_dropped),
        Sent::Nobody => {}
    }
}

/// Whether a train from another process is what it should have sent here.
fn is_for(received: &Received<'_>, membership: &Membership, local: &Local, port: u16) -> bool {
    let slot = membership.slot();
    let step = received.segment_bytes.max(1);
    let bound = membership.address();
    let destination = received.flow.destination;
    (bound.is_unspecified() || bound == destination)
        && !destination.is_multicast()
        && received.flow.destination_port == port
        && (is_only_for(received, local) || received.bytes.chunks(step).all(|one| names_srq_of(one, slot)))
}

/// What the names of the sockets of all who share a registry begin with.
pub(super) fn relay_stem(registry: &Registry, port: u16) -> Result<String, ShareError> {
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

#[cfg(test)]
#[path = "port_tests.rs"]
mod tests;
