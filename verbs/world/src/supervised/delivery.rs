//! Waits until everything that was sent by loopback has arrived.
//!
//! Normally a packet arrives within the call that sends it. On a busy machine the kernel defers the rest of a
//! queue to a thread of its own that runs later. Each processor has one queue for all networks: what the
//! supervisor sends to itself on the processor of the world arrives after all that was sent before.

use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsFd as _, BorrowedFd};

use nix::poll::PollTimeout;

use super::readiness::{await_readable, is_of_network};

/// Number of datagrams in a row that have to arrive at once; afterwards nothing is left in the queue, because
/// the effects of a packet are queued behind it.
const AT_ONCE: u32 = 2;
/// Maximum number of datagrams that are sent: other programs may use the queue as well.
const MOST: u32 = 16;
/// Time for which a datagram is awaited, in ms.
const PATIENCE_MS: u16 = 1_000;

/// The packets that may be on their way.
pub(crate) struct Delivery {
    /// Socket that is connected to itself; `None` if this machine has no loopback interface.
    own: Option<UdpSocket>,
    is_pending: bool,
}

impl Delivery {
    pub(crate) fn new() -> Delivery {
        Delivery { own: connected_to_itself().ok(), is_pending: false }
    }

    /// Notes that something may have been sent.
    pub(crate) const fn may_be_pending(&mut self) {
        self.is_pending = true;
    }

    /// Notes a call that sends, if its descriptor is a network socket.
    pub(crate) fn touched(&mut self, file: BorrowedFd<'_>) {
        self.is_pending |= is_of_network(file);
    }

    /// Waits until everything that was sent has arrived.
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
