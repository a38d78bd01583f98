//! Whether what was sent by loopback has arrived.
//!
//! As a rule a packet arrives within the call that sends it. On a busy machine the kernel puts the rest of a
//! queue off, to a thread of its own that runs later. Each processor has one queue, whatever the network it
//! is of: what the supervisor sends to itself on the processor of the world arrives after all that was sent
//! before.

use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};

use nix::poll::PollTimeout;
use nix::sys::socket::{AddressFamily, SockaddrLike as _, SockaddrStorage, getsockname};

use super::readiness::await_readable;

/// Datagrams in a row that arrive at once, after which nothing waits in the queue any more: what one packet
/// brings about is queued behind it.
const AT_ONCE: u32 = 2;
/// Datagrams that are sent at most: others may use the queue as well.
const MOST: u32 = 16;
/// How long one is waited for, in ms.
const PATIENCE_MS: u16 = 1_000;

/// What may be on its way.
pub(crate) struct Delivery {
    /// A socket that is connected to itself; `None`: this machine has no loopback interface.
    own: Option<UdpSocket>,
    is_pending: bool,
}

impl Delivery {
    pub(crate) fn new() -> Delivery {
        Delivery { own: connected_to_itself().ok(), is_pending: false }
    }

    /// Something may have been sent.
    pub(crate) const fn may_be_pending(&mut self) {
        self.is_pending = true;
    }

    /// A call was made that sends, if it was about a socket of a network.
    pub(crate) fn touched(&mut self, file: BorrowedFd<'_>) {
        let own = getsockname::<SockaddrStorage>(file.as_raw_fd()).ok().and_then(|own| own.family());
        self.is_pending |= matches!(own, Some(AddressFamily::Inet | AddressFamily::Inet6));
    }

    /// Waits until all that was sent has arrived.
    pub(crate) fn settle(&mut self) {
        if !std::mem::take(&mut self.is_pending) {
            return;
        }
        let Some(own) = &self.own else { return };
        let (mut at_once, mut sent) = (0, 0);
        while at_once < AT_ONCE && sent < MOST {
            if own.send(&[0]).is_err() {
                return;
            }
            sent += 1;
            let is_there = await_readable(own.as_fd(), PollTimeout::ZERO);
            at_once = if is_there { at_once + 1 } else { 0 };
            if is_there || await_readable(own.as_fd(), PATIENCE_MS.into()) {
                let _ = own.recv(&mut [0]);
            }
        }
    }
}

fn connected_to_itself() -> std::io::Result<UdpSocket> {
    let own = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    own.connect(own.local_addr()?)?;
    own.set_nonblocking(true)?;
    Ok(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sent_before_is_there_afterwards() {
        let mut delivery = Delivery::new();
        let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let receiver = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        receiver.set_nonblocking(true).unwrap();
        sender.send_to(b"x", receiver.local_addr().unwrap()).unwrap();
        delivery.touched(sender.as_fd());
        assert!(delivery.is_pending);
        delivery.settle();
        assert!(!delivery.is_pending);
        assert_eq!(receiver.recv(&mut [0]).unwrap(), 1);
        let (reader, _) = nix::unistd::pipe().unwrap();
        delivery.touched(reader.as_fd());
        assert!(!delivery.is_pending);
    }
}
