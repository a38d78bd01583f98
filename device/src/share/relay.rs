//! From the process that got a packet to the one that it is for.
//!
//! Each slot has a unix datagram socket in the abstract namespace, which belongs to the network namespace and
//! leaves nothing behind. Anybody may send to it, so only datagrams of the same user are looked at, and those
//! are checked like packets from the network.

use std::ffi::OsString;
use std::fmt;
use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicU32, Ordering};

use pumice_transport::path::Flow;
use socket2::{Domain, SockAddr, Socket, Type};

use super::{datagram, process, record};
use crate::port::Received;

const MAGIC: [u8; 4] = *b"pmR1";
const KIND_TRAIN: u8 = 1;
const KIND_LOOK: u8 = 2;
const KIND_ASK: u8 = 3;
const HEADER_BYTES: usize = 48;
/// A train is at most one UDP datagram.
const BUFFER_BYTES: usize = HEADER_BYTES + 65_536;
/// How much a sender may have on its way; the kernel also limits how many datagrams wait for one receiver
/// (net.unix.max_dgram_qlen).
const SEND_BUFFER_BYTES: usize = 4 << 20;

/// What became of something sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sent {
    Done,
    /// The receiver does not keep up: dropped.
    Full,
    /// Nobody has the slot.
    Nobody,
}

/// What came.
#[derive(Debug)]
pub(super) enum Incoming<'a> {
    Nothing,
    /// A train for a queue pair of this process, says the sender.
    Train(Received<'a>),
    /// The sender misses this process in the registry.
    Look,
    /// Somebody with this number wants to know what was counted.
    Ask(u64),
    /// Of another user, or malformed.
    Rejected,
}

/// The socket of a slot.
#[derive(Debug)]
pub(super) struct Relay {
    socket: Socket,
    /// What the names of all slots' sockets begin with.
    stem: String,
    uid: u32,
    buffer: Vec<u8>,
}

impl Relay {
    /// Opens the socket of `slot`. All who share a registry have the same `stem`.
    ///
    /// # Errors
    /// `AddrInUse`: somebody has the name, perhaps another user; what else the system says.
    pub(super) fn bind(stem: &str, slot: u8) -> io::Result<Relay> {
        let socket = Socket::new(Domain::UNIX, Type::DGRAM, None)?;
        datagram::ask_for_sender(socket.as_raw_fd())?;
        socket.set_send_buffer_size(SEND_BUFFER_BYTES)?;
        socket.bind(&name(stem, slot)?)?;
        let (stem, uid) = (stem.to_owned(), process::real_uid());
        Ok(Relay { socket, stem, uid, buffer: vec![0; BUFFER_BYTES] })
    }

    /// Hands a train to the process of `slot`.
    pub(super) fn send_train(&self, slot: u8, received: &Received<'_>) -> Sent {
        let (family, source) = record::address_bytes(received.flow.source);
        let (destination_family, destination) = record::address_bytes(received.flow.destination);
        if family != destination_family {
            return Sent::Nobody;
        }
        let mut header = Header([0; HEADER_BYTES]);
        header.put(0, &MAGIC);
        header.put(4, &[KIND_TRAIN, received.traffic_class, received.hop_limit, family]);
        // Longer than the train means the same as being as long.
        let segment_bytes = u32::try_from(received.segment_bytes).unwrap_or(u32::MAX);
        header.put(8, &segment_bytes.to_le_bytes());
        header.put(12, &received.flow.source_port.to_le_bytes());
        header.put(14, &received.flow.destination_port.to_le_bytes());
        header.put(16, &source);
        header.put(32, &destination);
        self.send(slot, &header.0, received.bytes)
    }

    /// Asks the process of `slot` to look at the registry.
    pub(super) fn send_look(&self, slot: u8) -> Sent {
        let mut header = Header([0; HEADER_BYTES]);
        header.put(0, &MAGIC);
        header.put(4, &[KIND_LOOK]);
        self.send(slot, &header.0, &[])
    }

    /// Answers who asked with this number.
    pub(super) fn answer(&self, asker: u64, text: &[u8]) -> Sent {
        name(&self.stem, asker_place(asker)).map_or(Sent::Nobody, |to| send(&self.socket, &to, &[], text))
    }

    fn send(&self, slot: u8, header: &[u8], bytes: &[u8]) -> Sent {
        name(&self.stem, slot).map_or(Sent::Nobody, |to| send(&self.socket, &to, header, bytes))
    }

    /// Takes what came first.
    pub(super) fn receive(&mut self) -> Incoming<'_> {
        let came = match datagram::receive(self.socket.as_raw_fd(), &mut self.buffer) {
            Ok(Some(came)) => came,
            Ok(None) | Err(_) => return Incoming::Nothing,
        };
        if came.uid != Some(self.uid) || came.truncated {
            return Incoming::Rejected;
        }
        self.buffer.get(..came.length_bytes).and_then(parse).unwrap_or(Incoming::Rejected)
    }
}

impl AsRawFd for Relay {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

/// A socket that asks what processes counted.
#[derive(Debug)]
pub(super) struct Asker {
    socket: Socket,
    stem: String,
    number: u64,
    uid: u32,
}

impl Asker {
    /// Opens a socket for answers.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn bind(stem: &str) -> io::Result<Asker> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = u64::from(std::process::id()) << 32 | u64::from(COUNT.fetch_add(1, Ordering::Relaxed));
        let socket = Socket::new(Domain::UNIX, Type::DGRAM, None)?;
        datagram::ask_for_sender(socket.as_raw_fd())?;
        socket.bind(&name(stem, asker_place(number))?)?;
        Ok(Asker { socket, stem: stem.to_owned(), number, uid: process::real_uid() })
    }

    /// Asks the process of `slot`.
    pub(super) fn ask(&self, slot: u8) -> Sent {
        let mut header = Header([0; HEADER_BYTES]);
        header.put(0, &MAGIC);
        header.put(4, &[KIND_ASK]);
        header.put(16, &self.number.to_le_bytes());
        name(&self.stem, slot).map_or(Sent::Nobody, |to| send(&self.socket, &to, &header.0, &[]))
    }

    /// An answer of a process of this user, if one has come.
    pub(super) fn receive<'a>(&self, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
        loop {
            let came = datagram::receive(self.socket.as_raw_fd(), buffer).ok()??;
            if came.uid == Some(self.uid) && !came.truncated {
                return buffer.get(..came.length_bytes);
            }
        }
    }
}

impl AsRawFd for Asker {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

fn asker_place(number: u64) -> String {
    format!("ask-{number:x}")
}

fn send(socket: &Socket, to: &SockAddr, header: &[u8], bytes: &[u8]) -> Sent {
    let parts = [IoSlice::new(header), IoSlice::new(bytes)];
    match socket.send_to_vectored_with_flags(&parts, to, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) {
        Ok(_) => Sent::Done,
        Err(error) => match error.raw_os_error() {
            Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM | libc::EINTR) => Sent::Full,
            _ => Sent::Nobody,
        },
    }
}

struct Header([u8; HEADER_BYTES]);

impl Header {
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
    if kind == KIND_LOOK {
        return Some(Incoming::Look);
    }
    if kind == KIND_ASK {
        return source.first_chunk::<8>().map(|number| Incoming::Ask(u64::from_le_bytes(*number)));
    }
    let segment_bytes = usize::try_from(u32::from_le_bytes(*segment_bytes)).ok()?.min(bytes.len());
    if kind != KIND_TRAIN || segment_bytes == 0 {
        return None;
    }
    Some(Incoming::Train(Received {
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
    }))
}

/// The abstract name of a slot's socket, or of somebody who asks.
fn name(stem: &str, place: impl fmt::Display) -> io::Result<SockAddr> {
    SockAddr::unix(OsString::from(format!("\0{stem}-{place}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    fn train(address: &str, bytes: &'static [u8]) -> Received<'static> {
        let address: IpAddr = address.parse().unwrap();
        let flow = Flow { source: address, destination: address, source_port: 77, destination_port: 4791 };
        Received { flow, traffic_class: 3, hop_limit: 63, segment_bytes: 4, bytes }
    }

    #[test]
    fn a_train_comes_as_it_went() {
        let stem = format!("pumice-relay-test-{}", std::process::id());
        let (a, mut b) = (Relay::bind(&stem, 1).unwrap(), Relay::bind(&stem, 2).unwrap());
        assert_eq!(Relay::bind(&stem, 2).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        for address in ["127.0.0.5", "::1"] {
            let sent = train(address, b"0123456789");
            assert_eq!(a.send_train(2, &sent), Sent::Done);
            let Incoming::Train(came) = b.receive() else { panic!("a train") };
            assert_eq!((came.flow, came.traffic_class, came.hop_limit), (sent.flow, 3, 63));
            assert_eq!((came.segment_bytes, came.bytes), (4, sent.bytes));
        }
        assert!(matches!(b.receive(), Incoming::Nothing));
        assert_eq!(a.send_look(2), Sent::Done);
        assert!(matches!(b.receive(), Incoming::Look));
        assert_eq!(a.send_train(3, &train("::1", b"x")), Sent::Nobody);

        let mut sent = 0;
        while a.send_train(2, &train("::1", &[0; 60_000])) == Sent::Done {
            sent += 1;
            assert!(sent < 100_000, "the queue has a limit");
        }
        assert_eq!(a.send_train(2, &train("::1", &[0; 60_000])), Sent::Full);
        drop(b);
        assert_eq!(a.send_look(2), Sent::Nobody);
    }

    #[test]
    fn nonsense_is_rejected() {
        let stem = format!("pumice-relay-nonsense-{}", std::process::id());
        let (a, mut b) = (Relay::bind(&stem, 1).unwrap(), Relay::bind(&stem, 2).unwrap());
        let mut good = Header([0; HEADER_BYTES]);
        good.put(0, &MAGIC);
        good.put(4, &[KIND_TRAIN, 0, 0, 4, 9]);
        assert_eq!(a.send(2, &good.0, b"x"), Sent::Done);
        assert!(matches!(b.receive(), Incoming::Train(_)));
        // Magic, kind, family, segments of 0 bytes.
        for (place, value) in [(0, b'q'), (4, 9), (7, 5), (8, 0)] {
            let mut header = good.0;
            header[place] = value;
            a.send(2, &header, b"x");
            assert!(matches!(b.receive(), Incoming::Rejected), "{value} at {place}");
        }
        for length in 0..HEADER_BYTES {
            a.send(2, &good.0[..length], b"");
            assert!(matches!(b.receive(), Incoming::Rejected), "{length} bytes");
        }
        a.send(2, &good.0, b"");
        assert!(matches!(b.receive(), Incoming::Rejected), "an empty train");
    }
}
