//! Sockets that only send, one for each UDP source port that flows were given.
//!
//! Receivers and routers spread flows by their source ports, so each connection has one of its own, and a UDP
//! socket sends from the port that it is bound to. Nothing is received here: answers go to the RoCE port, and
//! what comes all the same is dropped by the kernel.
//!
//! **A bounded number.** A port that sends has a descriptor, up to a limit: flows that go through rings need
//! none. Beyond it a port that sent nothing for a while makes room for a new one, and is opened again when it
//! sends again; where all send, flows share the existing ports.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, RawFd};

use pumice_transport::wire::source_port;
use socket2::Socket;

use pumice_platform::udp;
use pumice_platform::udp::PortReuse;
use pumice_platform::udp::unread::Scopes;

/// Largest number of ports at a time.
const MAX_PORTS: usize = 256;
/// Divisor of the descriptors that the process may have: its ports take at most this part.
const DESCRIPTOR_FRACTION: u64 = 8;
/// Time without sending after which a port makes room for another one, in nanoseconds.
const IDLE_NS: u64 = 10_000_000_000;
/// Number of ports that are tried in place of one that another program has.
const ATTEMPTS: u16 = 8;
/// Step from one of these to the next, which leads through all ports of the range.
const STEP: u16 = 0x0d35;

#[derive(Debug)]
struct Sender {
    socket: Socket,
    used_ns: u64,
}

/// The sending sockets of a port.
#[derive(Debug)]
pub(super) struct Senders {
    open: BTreeMap<(IpAddr, u16), Sender>,
    limit: usize,
    buffer_bytes: usize,
}

impl Senders {
    /// Creates an empty set.
    pub(super) fn new(buffer_bytes: usize) -> Senders {
        Senders { open: BTreeMap::new(), limit: limit(), buffer_bytes }
    }

    /// Returns the port that a flow from `source` has to use: `wanted` if possible, else another one of the
    /// range; `None` if it cannot have one of its own.
    pub(super) fn reserve(&mut self, now_ns: u64, source: IpAddr, wanted: u16) -> Option<u16> {
        if !source_port::is_computed(wanted) {
            return None;
        }
        if let Some(sender) = self.open.get_mut(&(source, wanted)) {
            sender.used_ns = sender.used_ns.max(now_ns);
            return Some(wanted);
        }
        if self.open.len() >= self.limit && !self.close_one(|sender| is_idle(sender, now_ns)) {
            let own = || self.open.keys().filter(|(address, _)| *address == source).map(|(_, port)| *port);
            let nth = usize::from(wanted).checked_rem(own().count())?;
            return own().nth(nth);
        }
        (0..ATTEMPTS)
            .map(|attempt| wanted.wrapping_add(attempt.wrapping_mul(STEP)) | source_port::FIRST)
            .find(|&port| self.bind(source, port).is_some())
    }

    /// Returns the socket to send with from a port that was reserved, and opens it again if it was closed
    /// since. `None` means that another program has taken the port meanwhile, or that the process has no
    /// descriptor left.
    #[inline]
    pub(super) fn socket(&mut self, now_ns: u64, source: IpAddr, port: u16) -> Option<RawFd> {
        if let Some(sender) = self.open.get_mut(&(source, port)) {
            sender.used_ns = now_ns;
            return Some(sender.socket.as_raw_fd());
        }
        self.reopened(now_ns, source, port)
    }

    #[cold]
    fn reopened(&mut self, now_ns: u64, source: IpAddr, port: u16) -> Option<RawFd> {
        if self.open.len() >= self.limit {
            self.close_one(|_| true);
        }
        self.open(now_ns, source, port);
        self.open.get(&(source, port)).map(|sender| sender.socket.as_raw_fd())
    }

    fn open(&mut self, now_ns: u64, source: IpAddr, port: u16) {
        if let Some(socket) = self.bind(source, port) {
            self.open.insert((source, port), Sender { socket, used_ns: now_ns });
        }
    }

    fn bind(&self, source: IpAddr, port: u16) -> Option<Socket> {
        if self.limit == 0 {
            return None;
        }
        let scope_id = Scopes::default().scope_id(source, source);
        let name = udp::destination(false, source, port, scope_id);
        // The processes of a user share these ports, too: two ends on one address compute the same one.
        let sharing = PortReuse { reuse_port: true, reuse_address: false };
        udp::open_sender(name, self.buffer_bytes, sharing).ok()
    }

    /// Closes the port that has sent nothing for longest, if it may be closed.
    fn close_one(&mut self, may_close: impl Fn(&Sender) -> bool) -> bool {
        let oldest = self.open.iter().min_by_key(|(_, sender)| sender.used_ns);
        let Some(name) = oldest.filter(|(_, sender)| may_close(sender)).map(|(name, _)| *name) else {
            return false;
        };
        self.open.remove(&name).is_some()
    }

    #[cfg(test)]
    pub(super) fn limited(mut self, limit: usize) -> Senders {
        self.limit = limit;
        self
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.open.len()
    }
}

fn is_idle(sender: &Sender, now_ns: u64) -> bool {
    now_ns.saturating_sub(sender.used_ns) >= IDLE_NS
}

/// Returns how many ports this process may have.
fn limit() -> usize {
    let descriptors = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let part = descriptors.map_or(u64::MAX, |soft| soft / DESCRIPTOR_FRACTION);
    usize::try_from(part).unwrap_or(MAX_PORTS).min(MAX_PORTS)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, UdpSocket};

    use super::*;

    /// An address of this test alone.
    fn address(last: u8) -> IpAddr {
        let [.., high, low] = std::process::id().to_be_bytes();
        IpAddr::V4(Ipv4Addr::new(127, high | 1, low, last))
    }

    #[test]
    fn a_flow_has_the_port_that_it_wants() {
        let mut senders = Senders::new(65_536).limited(4);
        let own = address(1);
        assert_eq!(senders.reserve(0, own, 0xc123), Some(0xc123));
        assert_eq!(senders.reserve(0, own, 0xc123), Some(0xc123));
        assert_eq!(senders.count(), 0, "a flow that has sent nothing needs no descriptor");
        assert_eq!(senders.reserve(0, own, 4791), None, "it is not one of the range");
        assert!(senders.socket(0, own, 0xc123).is_some());
        assert_eq!(senders.socket(0, own, 0xc123), senders.socket(1, own, 0xc123));
        assert_eq!(senders.count(), 1, "flows with one port share a socket");
    }

    #[test]
    fn a_port_that_another_program_has_is_replaced_by_one_of_the_range() {
        let mut senders = Senders::new(65_536).limited(4);
        let own = address(2);
        let held = UdpSocket::bind((own, 0xd001)).unwrap();
        let given = senders.reserve(0, own, 0xd001).unwrap();
        assert!(given != 0xd001 && source_port::is_computed(given), "{given}");
        drop(held);
        assert_eq!(senders.reserve(0, own, 0xd001), Some(0xd001));
    }

    #[test]
    fn beyond_the_limit_idle_ports_go_and_busy_ones_are_shared() {
        let mut senders = Senders::new(65_536).limited(2);
        let own = address(3);
        let [a, b, c] = [0xc100, 0xc101, 0xc102];
        assert_eq!(senders.reserve(1, own, a), Some(a));
        assert_eq!(senders.reserve(2, own, b), Some(b));
        assert!(senders.socket(1, own, a).is_some() && senders.socket(2, own, b).is_some());
        let shared = senders.reserve(3, own, c).unwrap();
        assert!([a, b].contains(&shared), "{shared:#x}");
        assert_eq!(senders.reserve(4, own, c), Some(shared), "the same one each time");
        let other = address(4);
        assert_eq!(senders.reserve(5, other, c), None, "it has no port that could be shared");
        // The first one is idle by then, the second one is not.
        assert!(senders.socket(IDLE_NS, own, b).is_some());
        assert_eq!(senders.reserve(IDLE_NS + 1, own, c), Some(c));
        assert!(senders.socket(IDLE_NS + 1, own, c).is_some());
        assert_eq!(senders.count(), 2);
        // A flow that was idle goes on from its port.
        assert!(senders.socket(IDLE_NS + 2, own, a).is_some());
        assert_eq!(senders.count(), 2);
    }

    #[test]
    fn without_descriptors_no_flow_has_a_port_of_its_own() {
        let mut senders = Senders::new(65_536).limited(0);
        assert_eq!(senders.reserve(0, address(5), 0xc100), None);
        assert_eq!(senders.socket(0, address(5), 0xc100), None);
    }

    #[test]
    fn the_step_leads_through_all_ports() {
        let ports: std::collections::BTreeSet<u16> = (0..0x4000_u16)
            .map(|n| 0xc000_u16.wrapping_add(n.wrapping_mul(STEP)) | source_port::FIRST)
            .collect();
        assert_eq!(ports.len(), 0x4000);
    }
}
