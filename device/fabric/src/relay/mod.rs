//! The relay: the way from the process that received a packet to the process that the packet is for.
//!
//! Each member index has a unix datagram socket with a name in the folder of the registry, which only this
//! user may enter. Both ends check each other. The sender checks that the lock of the index is held, so that
//! nothing goes to a name whose process has died, and relies on the folder for the fact that no other user
//! can have made a socket there. The receiver checks the sender's user, as the kernel reports it, and
//! validates the datagram like a packet from the network.
//!
//! **Invariant**: only a process that holds the lock of the index, or that holds the registry's lock while no
//! process holds that of the index, gives a socket its name or removes it. So a name never leads to another
//! process than the owner of the index. A killed process leaves its name behind; the next process that loads
//! the registry removes it.

pub(crate) mod command_queue;
pub(crate) mod local;

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

use pumice_model::fates::live::MAX_COMMAND_BYTES;
use pumice_model::port::batch;
use pumice_model::port::batch::ReceivedBatch;
use pumice_model::port::group::ControlCommand;
use pumice_transport::path::Flow;

use super::registry::Registry;
use super::system::{self, DatagramSocket, Guard};
use crate::files::sockets::{SendOutcome, Sockets};
use crate::members::member_index::MemberIndex;
use crate::members::{process, record};

const MAGIC: [u8; 4] = *b"pmR1";
const KIND_BATCH: u8 = 1;
const KIND_REPAIR: u8 = 2;
const KIND_QUERY: u8 = 3;
const KIND_COMMAND: u8 = 4;
const KIND_RING: u8 = 5;
const HEADER_BYTES: usize = 48;
/// Size of the receive buffer. A batch is at most one UDP datagram.
const BUFFER_BYTES: usize = HEADER_BYTES + 65_536;
/// Number of bytes that a sender may have in flight. The kernel also limits how many datagrams wait for one
/// receiver (net.unix.max_dgram_qlen).
const SEND_BUFFER_BYTES: usize = 4 << 20;

/// Content of a received datagram.
#[derive(Debug)]
pub(crate) enum Incoming<'a> {
    Nothing,
    /// A batch that, according to the sender, is for a queue pair of this process.
    Batch(ReceivedBatch<'a>),
    /// The sender does not find this process in the registry, and asks it to repair that.
    Repair,
    /// The asker with this number asks for the counters.
    Query(u64),
    /// A process of this user gives an order.
    ControlCommand(ControlCommand),
    /// A message of a process about a ring, and the descriptor that came with it.
    Ring(&'a [u8], Option<OwnedFd>),
    /// The datagram came from another user, or is malformed.
    Rejected,
}

/// The socket of a member.
#[derive(Debug)]
pub(crate) struct Relay {
    socket: DatagramSocket,
    sockets: Sockets,
    member: MemberIndex,
    /// Process that opened the socket: a fork child's copy does not remove the name.
    pid: u32,
    uid: u32,
    buffer: Vec<u8>,
}

impl Relay {
    /// Opens the socket of `member`, whose lock the caller holds.
    ///
    /// # Errors
    /// Fails with `AddrInUse` if something else has the name, and with errors of the operating system.
    pub(crate) fn bind(sockets: &Sockets, member: MemberIndex) -> io::Result<Relay> {
        let socket = DatagramSocket::new()?;
        sockets.name_member(&socket, member)?;
        socket.set_send_buffer_size(SEND_BUFFER_BYTES)?;
        let (pid, uid) = (system::process_id(), process::real_uid());
        Ok(Relay { socket, sockets: sockets.clone(), member, pid, uid, buffer: vec![0; BUFFER_BYTES] })
    }

    /// Sends a batch to `member`.
    pub(crate) fn send_batch(
        &self,
        registry: &Registry,
        member: MemberIndex,
        received: &ReceivedBatch<'_>,
    ) -> SendOutcome {
        let (family, source) = record::address_bytes(received.flow.source);
        let (destination_family, destination) = record::address_bytes(received.flow.destination);
        if family != destination_family {
            return SendOutcome::NoProcess;
        }
        let mut header = RelayHeader([0; HEADER_BYTES]);
        header.put(0, &MAGIC);
        header.put(4, &[KIND_BATCH, received.traffic_class, received.hop_limit, family]);
        // A segment length that is greater than the batch means the same as one that equals it.
        let segment_bytes = u32::try_from(received.segment_bytes).unwrap_or(u32::MAX);
        header.put(8, &segment_bytes.to_le_bytes());
        header.put(12, &received.flow.source_port.to_le_bytes());
        header.put(14, &received.flow.destination_port.to_le_bytes());
        header.put(16, &source);
        header.put(32, &destination);
        if received.has_icrc {
            return self.send(registry, member, &header.0, received.bytes);
        }
        let sealed = batch::sealed(&received.flow, received.segment_bytes, received.bytes);
        self.send(registry, member, &header.0, &sealed)
    }

    /// Asks `member` to read and repair the registry.
    pub(crate) fn send_repair_request(&self, registry: &Registry, member: MemberIndex) -> SendOutcome {
        let mut header = RelayHeader([0; HEADER_BYTES]);
        header.put(0, &MAGIC);
        header.put(4, &[KIND_REPAIR]);
        self.send(registry, member, &header.0, &[])
    }

    /// Sends a message about a ring to `member`, with a descriptor or without.
    pub(crate) fn send_ring(
        &self,
        registry: &Registry,
        member: MemberIndex,
        text: &[u8],
        descriptor: Option<BorrowedFd<'_>>,
    ) -> SendOutcome {
        let mut header = RelayHeader([0; HEADER_BYTES]);
        header.put(0, &MAGIC);
        header.put(4, &[KIND_RING]);
        let Some(descriptor) = descriptor else { return self.send(registry, member, &header.0, text) };
        if !is_taken(registry, member) {
            return SendOutcome::NoProcess;
        }
        let bytes = [&header.0, text].concat();
        self.sockets.send_descriptor_to_member(&self.socket, member, &bytes, descriptor)
    }

    /// Answers the asker with this number.
    pub(crate) fn answer(&self, querier: u64, text: &[u8]) -> SendOutcome {
        self.sockets.send_to_querier(&self.socket, querier, text)
    }

    fn send(&self, registry: &Registry, member: MemberIndex, header: &[u8], bytes: &[u8]) -> SendOutcome {
        send(&self.sockets, &self.socket, registry, member, header, bytes)
    }

    /// Takes the oldest datagram.
    pub(crate) fn receive(&mut self) -> Incoming<'_> {
        let datagram = match self.socket.receive(&mut self.buffer) {
            Ok(Some(datagram)) => datagram,
            Ok(None) | Err(_) => return Incoming::Nothing,
        };
        if datagram.uid != Some(self.uid) || datagram.truncated {
            return Incoming::Rejected;
        }
        match self.buffer.get(..datagram.length_bytes).and_then(parse) {
            Some(Incoming::Ring(text, _)) => Incoming::Ring(text, datagram.descriptor),
            other => other.unwrap_or(Incoming::Rejected),
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        if self.pid == system::process_id() {
            self.sockets.remove(self.member);
        }
    }
}

impl AsRawFd for Relay {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

/// A socket for questions and orders to other processes, and for their answers.
#[derive(Debug)]
pub(crate) struct Querier {
    socket: DatagramSocket,
    sockets: Sockets,
    number: u64,
    uid: u32,
}

impl Querier {
    /// Opens a socket for answers. The registry is locked.
    ///
    /// # Errors
    /// Fails with errors of the operating system.
    pub(crate) fn bind(sockets: &Sockets) -> io::Result<Querier> {
        sockets.sweep_queriers()?;
        let socket = DatagramSocket::new()?;
        // The kernel assigns no number to two sockets, even if their processes are in different namespaces.
        let number = socket.inode()?;
        sockets.name_querier(&socket, number)?;
        Ok(Querier { socket, sockets: sockets.clone(), number, uid: process::real_uid() })
    }

    /// Asks `member` for its counters.
    pub(crate) fn send_query(&self, registry: &Registry, member: MemberIndex) -> SendOutcome {
        let mut header = RelayHeader([0; HEADER_BYTES]);
        header.put(0, &MAGIC);
        header.put(4, &[KIND_QUERY]);
        header.put(16, &self.number.to_le_bytes());
        send(&self.sockets, &self.socket, registry, member, &header.0, &[])
    }

    /// Gives `member` an order. Orders of one asker differ in their numbers.
    pub(crate) fn order(
        &self,
        registry: &Registry,
        member: MemberIndex,
        number: u64,
        text: &[u8],
    ) -> SendOutcome {
        let mut header = RelayHeader([0; HEADER_BYTES]);
        header.put(0, &MAGIC);
        header.put(4, &[KIND_COMMAND]);
        header.put(16, &self.number.to_le_bytes());
        header.put(24, &number.to_le_bytes());
        send(&self.sockets, &self.socket, registry, member, &header.0, text)
    }

    /// Returns an answer of a process of this user, if one has come.
    pub(crate) fn receive<'a>(&self, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
        loop {
            let datagram = self.socket.receive(buffer).ok()??;
            if datagram.uid == Some(self.uid) && !datagram.truncated {
                return buffer.get(..datagram.length_bytes);
            }
        }
    }
}

impl Drop for Querier {
    fn drop(&mut self) {
        self.sockets.remove_querier(self.number);
    }
}

impl AsRawFd for Querier {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

/// Sends a datagram to `member`, unless its process has ended.
fn send(
    sockets: &Sockets,
    socket: &DatagramSocket,
    registry: &Registry,
    member: MemberIndex,
    header: &[u8],
    bytes: &[u8],
) -> SendOutcome {
    if !is_taken(registry, member) {
        return SendOutcome::NoProcess;
    }
    sockets.send_to_member(socket, member, header, bytes)
}

/// Reports whether `member` has a process that can be sent to.
fn is_taken(registry: &Registry, member: MemberIndex) -> bool {
    !system::guards(Guard::OwnerBeforeRelay) || registry.is_taken(member)
}

struct RelayHeader([u8; HEADER_BYTES]);

impl RelayHeader {
    fn put(&mut self, offset: usize, bytes: &[u8]) {
        if let Some(to) = self.0.get_mut(offset..offset + bytes.len()) {
            to.copy_from_slice(bytes);
        }
    }
}

fn parse(bytes: &[u8]) -> Option<Incoming<'_>> {
    let (header, bytes) = bytes.split_first_chunk::<HEADER_BYTES>()?;
    let (magic, header) = header.split_first_chunk::<4>()?;
    let (&[kind, traffic_class, hop_limit, family], header) = header.split_first_chunk::<4>()?;
    let (segment_bytes, header) = header.split_first_chunk::<4>()?;
    let (source_port, header) = header.split_first_chunk::<2>()?;
    let (destination_port, header) = header.split_first_chunk::<2>()?;
    let (source, header) = header.split_first_chunk::<16>()?;
    let destination = header.first_chunk::<16>()?;
    if *magic != MAGIC {
        return None;
    }
    if kind == KIND_REPAIR {
        return Some(Incoming::Repair);
    }
    if kind == KIND_QUERY {
        return source.first_chunk::<8>().map(|number| Incoming::Query(u64::from_le_bytes(*number)));
    }
    if kind == KIND_RING {
        return Some(Incoming::Ring(bytes, None));
    }
    if kind == KIND_COMMAND {
        let (querier, number) = source.split_first_chunk::<8>()?;
        let (querier, number) = (u64::from_le_bytes(*querier), u64::from_le_bytes(*number.first_chunk()?));
        let is_short = bytes.len() <= MAX_COMMAND_BYTES;
        return is_short
            .then(|| Incoming::ControlCommand(ControlCommand { querier, number, text: bytes.to_vec() }));
    }
    let segment_bytes = usize::try_from(u32::from_le_bytes(*segment_bytes)).ok()?.min(bytes.len());
    if kind != KIND_BATCH || segment_bytes == 0 {
        return None;
    }
    Some(Incoming::Batch(ReceivedBatch {
        flow: Flow {
            source: record::address_from(family, source)?,
            destination: record::address_from(family, destination)?,
            source_port: u16::from_le_bytes(*source_port),
            destination_port: u16::from_le_bytes(*destination_port),
        },
        traffic_class,
        hop_limit,
        segment_bytes,
        bytes,
        has_icrc: true,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::folder;
    use crate::files::sockets::querier_name;
    use crate::members::member::Member;
    use std::net::IpAddr;
    use std::path::PathBuf;
    use std::thread;
    use std::time::{Duration, Instant};

    fn nth(index: u16) -> MemberIndex {
        MemberIndex::of_number(index).unwrap()
    }

    fn batch(address: &str, bytes: &'static [u8]) -> ReceivedBatch<'static> {
        let address: IpAddr = address.parse().unwrap();
        let flow = Flow { source: address, destination: address, source_port: 77, destination_port: 4791 };
        ReceivedBatch { flow, traffic_class: 3, hop_limit: 63, segment_bytes: 4, bytes, has_icrc: true }
    }

    /// A folder with a registry, and two opens of it that have the process indices 1 and 2.
    struct Pair {
        top: PathBuf,
        registries: [Registry; 2],
        a: Relay,
        b: Relay,
    }

    impl Pair {
        fn new(name: &str) -> Pair {
            let top = std::env::temp_dir().join(format!("pumice-relay-{name}-{}", std::process::id()));
            let _ = std::fs::remove_dir_all(&top);
            let registries = [1, 2].map(|_| Registry::open(&top, 4791).unwrap());
            let [a, b] = [0, 1].map(|index: u16| {
                let registry = &registries[usize::from(index)];
                assert!(registry.claim(nth(index + 1)));
                Relay::bind(registry.sockets(), nth(index + 1)).unwrap()
            });
            Pair { top, registries, a, b }
        }

        fn names(&self) -> Vec<String> {
            let mut names = self.a.sockets.folder.names();
            names.sort();
            names
        }
    }

    impl Drop for Pair {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.top);
        }
    }

    #[test]
    fn a_batch_comes_as_it_went() {
        let mut pair = Pair::new("batch");
        let Pair { registries: [registry, _], a, b, .. } = &mut pair;
        for address in ["127.0.0.5", "::1"] {
            let sent = batch(address, b"0123456789");
            assert_eq!(a.send_batch(registry, nth(2), &sent), SendOutcome::Done);
            let Incoming::Batch(datagram) = b.receive() else { panic!("a batch") };
            assert_eq!((datagram.flow, datagram.traffic_class, datagram.hop_limit), (sent.flow, 3, 63));
            assert_eq!((datagram.segment_bytes, datagram.bytes), (4, sent.bytes));
        }
        assert!(matches!(b.receive(), Incoming::Nothing));
        assert_eq!(a.send_repair_request(registry, nth(2)), SendOutcome::Done);
        assert!(matches!(b.receive(), Incoming::Repair));
        assert_eq!(a.send_batch(registry, nth(3), &batch("::1", b"x")), SendOutcome::NoProcess);

        let mut sent = 0;
        while a.send_batch(registry, nth(2), &batch("::1", &[0; 60_000])) == SendOutcome::Done {
            sent += 1;
            assert!(sent < 100_000, "the queue has a limit");
        }
        assert_eq!(a.send_batch(registry, nth(2), &batch("::1", &[0; 60_000])), SendOutcome::Full);
    }

    #[test]
    fn the_name_of_an_index_without_an_owner_gets_nothing() {
        let mut pair = Pair::new("dead");
        let stem = pair.a.sockets.stem.clone();
        assert_eq!(pair.names().len(), 3, "{:?}", pair.names());
        // State as after a kill of the process: the name stays and leads to a socket, the lock is lost.
        pair.registries[1].release(nth(2));
        assert_eq!(
            pair.a.send_batch(&pair.registries[0], nth(2), &batch("::1", b"secret")),
            SendOutcome::NoProcess
        );
        assert_eq!(pair.a.send_repair_request(&pair.registries[0], nth(2)), SendOutcome::NoProcess);
        assert!(matches!(pair.b.receive(), Incoming::Nothing));
        // The process that takes the process index has the name from then on.
        assert!(pair.registries[0].claim(nth(2)));
        let mut heir = Relay::bind(pair.registries[0].sockets(), nth(2)).unwrap();
        assert_eq!(pair.b.send_repair_request(&pair.registries[1], nth(2)), SendOutcome::Done);
        assert!(matches!(heir.receive(), Incoming::Repair));
        assert!(matches!(pair.b.receive(), Incoming::Nothing));
        drop(heir);
        assert_eq!(pair.names(), [stem.clone(), format!("{stem}-slot1")]);
    }

    #[test]
    fn what_the_killed_leave_is_removed_by_who_loads_the_registry() {
        let pair = Pair::new("stale");
        let mut loaded = pair.registries[0].load(&[nth(1)]).unwrap();
        let member = Member {
            index: nth(9),
            pid: 1,
            pid_namespace: 1,
            start_ticks: 1,
            address: IpAddr::from([127, 0, 0, 1]),
            inode: 1,
        };
        loaded.members.add(member);
        loaded.members.add(Member { index: nth(1), ..member });
        loaded.members.adopt(nth(10), nth(1));
        pair.registries[0].store(&mut loaded.members).unwrap();
        let stem = &pair.a.sockets.stem;
        for process in [nth(9), nth(10)] {
            pair.a
                .sockets
                .name(&DatagramSocket::new().unwrap(), &folder::member_socket_name(stem, process))
                .unwrap();
        }
        pair.a.sockets.name(&DatagramSocket::new().unwrap(), &querier_name(stem, 77)).unwrap();
        assert_eq!(pair.names().len(), 6, "{:?}", pair.names());
        let querier = Querier::bind(&pair.b.sockets).unwrap();
        // A child that another test forks has copies of the closed sockets until it executes its program.
        let begun = Instant::now();
        let is_late = || begun.elapsed() > Duration::from_secs(60);
        while querier.send_query(&pair.registries[0], nth(9)) != SendOutcome::NoProcess && !is_late() {
            thread::yield_now();
        }
        assert_eq!(querier.send_query(&pair.registries[0], nth(9)), SendOutcome::NoProcess);
        let again = loop {
            let again = Querier::bind(&pair.b.sockets).unwrap();
            if pair.names().len() == 7 || is_late() {
                break again;
            }
        };
        assert_eq!(pair.names().len(), 7, "the processes that ask live: {:?}", pair.names());
        drop((querier, again));
        pair.registries[0].load(&[nth(1)]).unwrap();
        while pair.names().len() > 3 && !is_late() {
            pair.registries[0].load(&[nth(1)]).unwrap();
        }
        assert_eq!(pair.names(), [stem.clone(), format!("{stem}-slot1"), format!("{stem}-slot2")]);
    }

    #[test]
    fn what_another_user_sends_is_rejected() {
        use std::os::fd::OwnedFd;
        use std::os::unix::net::UnixDatagram;
        use std::os::unix::process::CommandExt as _;
        use std::process::{Command, Stdio};
        let mut pair = Pair::new("user");
        let mut good = RelayHeader([0; HEADER_BYTES]);
        good.put(0, &MAGIC);
        good.put(4, &[KIND_BATCH, 0, 0, 4, 9]);
        let packet = pair.top.join("packet");
        std::fs::write(&packet, [&good.0[..], b"x"].concat()).unwrap();
        // The folder keeps another user from connecting a socket, so a connected socket is the most that one
        // could have.
        let mut send = |uid: Option<u32>| {
            let socket = UnixDatagram::unbound().unwrap();
            socket.connect(pair.top.join(folder::member_socket_name(&pair.a.sockets.stem, nth(2)))).unwrap();
            let mut command = Command::new("cat");
            command.stdin(std::fs::File::open(&packet).unwrap()).stdout(Stdio::from(OwnedFd::from(socket)));
            uid.map(|uid| command.uid(uid));
            let sent = command.status().is_ok_and(|status| status.success());
            sent.then(|| matches!(pair.b.receive(), Incoming::Batch(_)))
        };
        assert_eq!(send(None), Some(true));
        if send(Some(61_002)).is_none() {
            let _ = std::io::Write::write_all(
                &mut std::io::stderr(),
                b"**** SKIPPED: only root can send as another user\n",
            );
            return;
        }
        assert_eq!(send(Some(61_002)), Some(false));
        assert_eq!(send(None), Some(true));
    }

    #[test]
    fn an_order_comes_as_it_went() {
        let mut pair = Pair::new("order");
        let querier = Querier::bind(&pair.a.sockets).unwrap();
        let Pair { registries: [registry, _], b, .. } = &mut pair;
        assert_eq!(querier.order(registry, nth(2), 77, b"text"), SendOutcome::Done);
        let Incoming::ControlCommand(order) = b.receive() else { panic!("an order") };
        assert_eq!((order.number, &order.text[..]), (77, &b"text"[..]));
        assert_eq!(b.answer(order.querier, b"done"), SendOutcome::Done);
        assert_eq!(querier.receive(&mut [0; 9]), Some(&b"done"[..]));
        assert_eq!(querier.order(registry, nth(2), 78, &[0; MAX_COMMAND_BYTES + 1]), SendOutcome::Done);
        assert!(matches!(b.receive(), Incoming::Rejected), "longer than an order may be");
    }

    #[test]
    fn nonsense_is_rejected() {
        let mut pair = Pair::new("nonsense");
        let Pair { registries: [registry, _], a, b, .. } = &mut pair;
        let mut good = RelayHeader([0; HEADER_BYTES]);
        good.put(0, &MAGIC);
        good.put(4, &[KIND_BATCH, 0, 0, 4, 9]);
        assert_eq!(a.send(registry, nth(2), &good.0, b"x"), SendOutcome::Done);
        assert!(matches!(b.receive(), Incoming::Batch(_)));
        // Magic, kind, family, segments of 0 bytes.
        for (offset, value) in [(0, b'q'), (4, 9), (7, 5), (8, 0)] {
            let mut header = good.0;
            header[offset] = value;
            a.send(registry, nth(2), &header, b"x");
            assert!(matches!(b.receive(), Incoming::Rejected), "{value} at {offset}");
        }
        for length in 0..HEADER_BYTES {
            a.send(registry, nth(2), &good.0[..length], b"");
            assert!(matches!(b.receive(), Incoming::Rejected), "{length} bytes");
        }
        a.send(registry, nth(2), &good.0, b"");
        assert!(matches!(b.receive(), Incoming::Rejected), "an empty batch");
    }
}
