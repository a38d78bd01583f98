//! The baseline of benchmarks: the same kind of sockets with nothing on top.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;

use socket2::{SockAddr, Socket};

use super::message::{self, Control};
use super::{PortError, PortReuse};

/// The way to wait for a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RawWait {
    /// Poll again and again: lowest latency, one core.
    Spin,
    /// Sleep in the kernel.
    Block,
}

/// A UDP socket opened exactly as `UdpPort` opens its own.
#[derive(Debug)]
pub struct RawUdp {
    socket: Socket,
    buffer: Vec<u8>,
}

impl RawUdp {
    /// Opens the socket; port 0 lets the system choose. `address` is no wildcard.
    ///
    /// # Errors
    /// See [`PortError`].
    pub fn bind(address: IpAddr, port: u16) -> Result<RawUdp, PortError> {
        let socket = super::open(SocketAddr::new(address, port), 4 << 20, PortReuse::default())?;
        Ok(RawUdp { socket, buffer: vec![0; 65_536] })
    }

    /// Returns the address that the socket is bound to.
    ///
    /// # Errors
    /// Fails with the error of getsockname.
    pub fn address(&self) -> io::Result<SocketAddr> {
        let name = self.socket.local_addr()?.as_socket();
        name.ok_or_else(|| io::Error::from_raw_os_error(libc::EAFNOSUPPORT))
    }

    /// Ends a blocking wait with `WouldBlock` after this long; `None` waits for ever.
    ///
    /// # Errors
    /// Fails with the error of setsockopt.
    pub fn set_wait_limit(&self, limit: Option<std::time::Duration>) -> io::Result<()> {
        self.socket.set_read_timeout(limit)
    }

    /// Sends one batch of `batch_segments` packets of `segment_bytes` in one call; the contents are those of
    /// the last packets received. Returns the bytes sent. Give as many as the limits of
    /// `UdpPort` allow.
    ///
    /// # Errors
    /// Fails with the error of sendmsg; `WouldBlock` when the send buffer is full, `InvalidInput` when the
    /// batch does not fit 65507 bytes or 128 packets.
    pub fn stream_send(
        &mut self,
        destination: SocketAddr,
        segment_bytes: usize,
        batch_segments: usize,
    ) -> io::Result<usize> {
        let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
        let bytes = segment_bytes.checked_mul(batch_segments).ok_or_else(invalid)?;
        let payload = self.buffer.get(..bytes).ok_or_else(invalid)?;
        let mut control = Control::new();
        if batch_segments > 1 {
            control.push_segment_bytes(u16::try_from(segment_bytes).map_err(|_| invalid())?);
        }
        message::send(self.socket.as_raw_fd(), &SockAddr::from(destination), payload, &mut control)?;
        Ok(bytes)
    }

    /// Receives one batch; returns 0 if spinning and there is none. The bytes stay in the socket's buffer.
    ///
    /// # Errors
    /// Fails if nothing arrived within the wait limit of a blocking socket.
    pub fn receive_batch(&mut self, wait: RawWait) -> io::Result<usize> {
        self.receive_from(wait).map(|arrival| arrival.map_or(0, |(bytes, _)| bytes))
    }

    /// Makes one round trip as the side that begins: sends `bytes` bytes and waits for an answer.
    ///
    /// # Errors
    /// Fails with the error of sendmsg, or if no answer comes within the wait limit of a blocking socket.
    /// Spinning never gives up.
    pub fn ping(&mut self, destination: SocketAddr, bytes: usize, wait: RawWait) -> io::Result<()> {
        self.stream_send(destination, bytes, 1)?;
        while self.receive_from(wait)?.is_none() {
            std::hint::spin_loop();
        }
        Ok(())
    }

    /// Answers one datagram with as many bytes, as the other side of a round trip. Returns false if spinning
    /// and there is none.
    ///
    /// # Errors
    /// Fails as [`ping`](RawUdp::ping) does.
    pub fn pong(&mut self, wait: RawWait) -> io::Result<bool> {
        let Some((bytes, from)) = self.receive_from(wait)? else { return Ok(false) };
        self.stream_send(from, bytes, 1)?;
        Ok(true)
    }

    fn receive_from(&mut self, wait: RawWait) -> io::Result<Option<(usize, SocketAddr)>> {
        let flags = match wait {
            RawWait::Spin => libc::MSG_DONTWAIT,
            RawWait::Block => 0,
        };
        let arrival = message::receive(self.socket.as_raw_fd(), &mut self.buffer, &mut Control::new(), flags);
        match (arrival, wait) {
            (Some(arrival), _) => Ok(Some((arrival.length_bytes, arrival.source))),
            (None, RawWait::Spin) => Ok(None),
            (None, RawWait::Block) => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use std::time::Duration;

    fn open() -> RawUdp {
        let raw = RawUdp::bind(IpAddr::V4(Ipv4Addr::LOCALHOST), 0).unwrap();
        raw.set_wait_limit(Some(Duration::from_secs(5))).unwrap();
        raw
    }

    #[test]
    fn a_batch_arrives_in_one_piece_or_several() {
        let (mut a, mut b) = (open(), open());
        let to = b.address().unwrap();
        let sent = a.stream_send(to, 1056, 62).unwrap();
        let mut received = 0;
        while received < sent {
            received += b.receive_batch(RawWait::Block).unwrap();
        }
        assert_eq!((sent, received), (62 * 1056, 62 * 1056));
        assert_eq!(b.receive_batch(RawWait::Spin).unwrap(), 0);
        assert!(a.stream_send(to, 4128, 16).is_err(), "more than 65536 bytes");
    }

    #[test]
    fn ping_and_pong() {
        for wait in [RawWait::Spin, RawWait::Block] {
            let (mut a, mut b) = (open(), open());
            let to = b.address().unwrap();
            std::thread::scope(|scope| {
                let server = scope.spawn(move || {
                    let mut answered = 0;
                    while answered < 100 {
                        answered += usize::from(b.pong(wait).unwrap());
                    }
                });
                for _ in 0..100 {
                    a.ping(to, 64, wait).unwrap();
                }
                server.join().unwrap();
            });
        }
    }
}
