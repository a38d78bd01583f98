//! One end of datagrams: a UD queue pair on one of the host's addresses.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;
use std::sync::Arc;

use pumice_transport::cm::MadRoute;
use pumice_transport::path::Path;
use pumice_transport::types::{
    RecvRequest, SendFlags, SendOpcode, SendRequest, Sge, UdDestination, WcStatus, WorkCompletion,
};

use super::buffers::{BufferRegion, Buffers, LOCAL};
use super::identifier::SocketId;
use super::link::{LinkParameters, LinkQueuePair};
use crate::platform::{Errno, INVALID};
use crate::rdma_cm::address::lookup;
use crate::rdma_cm::constants::{DATAGRAM_Q_KEY, HOP_LIMIT, PS_UDP, QPT_UD};
use crate::rdma_cm::id::objects::path_of;
use crate::rdma_cm::id::queue_pair::address_vector;
use crate::rdma_cm::id::shared::shared_with;
use crate::rsocket::protocol::headers::Source;

/// Length in bytes of the buffer of a datagram between queue pairs, its header included. Longer ones go over
/// UDP.
const BUFFER_BYTES: u32 = 2048;
/// Length in bytes of the GRH area before a received datagram.
const GRH: u32 = 40;
/// Bit of a request number that marks receives.
const RECEIVE: u64 = 1 << 32;
const BATCH: usize = 16;

/// A queue pair for datagrams on one address.
pub(crate) struct DatagramQueuePair {
    queue_pair: LinkQueuePair,
    outgoing: BufferRegion,
    incoming: BufferRegion,
    /// Free buffers of the outgoing region.
    free: Vec<u32>,
    pub(crate) ip: IpAddr,
    longest: usize,
    buffers: usize,
    armed: bool,
}

impl DatagramQueuePair {
    /// Creates an end on an address, for this number of datagrams in each direction.
    ///
    /// # Errors
    /// Fails if it is none of the device's addresses, or if a resource is exhausted.
    pub(crate) fn new(ip: IpAddr, sends: u16, receives: u16) -> Result<DatagramQueuePair, Errno> {
        let id = Arc::new(SocketId::new(PS_UDP)?);
        id.bind(SocketAddr::new(ip, 0))?;
        let parameters = LinkParameters { kind: QPT_UD, sends, receives, receive_elements: 1, inline: 0 };
        let queue_pair = LinkQueuePair::new(&id, &parameters)?;
        let shared = id.id().shared()?;
        let mtu = shared.hca().active_mtu_of(id.id().c.port_num()).bytes().min(BUFFER_BYTES as usize);
        let mut end = DatagramQueuePair {
            queue_pair,
            outgoing: BufferRegion::new(shared, usize::from(sends) * BUFFER_BYTES as usize, LOCAL)?,
            incoming: BufferRegion::new(
                shared,
                usize::from(receives) * (BUFFER_BYTES + GRH) as usize,
                LOCAL,
            )?,
            free: (0..u32::from(sends)).collect(),
            ip,
            longest: mtu,
            buffers: sends.into(),
            armed: false,
        };
        for buffer in 0..u32::from(receives) {
            end.post_receive(buffer)?;
        }
        end.arm();
        Ok(end)
    }

    /// Returns the number of its queue pair.
    pub(crate) fn qpn(&self) -> u32 {
        self.queue_pair.number.value()
    }

    /// Returns its descriptor, which is readable when a request has completed.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.queue_pair.descriptor()
    }

    /// Reports whether a datagram can be sent now.
    pub(crate) fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    /// Reports whether all that was sent has left.
    pub(crate) fn is_idle(&self) -> bool {
        self.free.len() == self.buffers
    }

    /// Reports whether a datagram of this length, with its header, fits one packet.
    pub(crate) const fn takes(&self, length: usize) -> bool {
        length <= self.longest
    }

    /// Requests an event with the next completion.
    pub(crate) fn arm(&mut self) {
        if self.queue_pair.take_event() {
            self.armed = false;
        }
        if !self.armed {
            self.queue_pair.arm();
            self.armed = true;
        }
    }

    fn post_receive(&self, buffer: u32) -> Result<(), Errno> {
        let address = self.incoming.address(buffer * (BUFFER_BYTES + GRH));
        let sges = [Sge { address, length: BUFFER_BYTES + GRH, lkey: self.incoming.lkey() }];
        let request = RecvRequest { wr_id: RECEIVE | u64::from(buffer), sges: &sges };
        Ok(self.queue_pair.hca.post_recv(self.queue_pair.number, &request)?)
    }

    /// Returns the path from here to a peer's queue pair.
    ///
    /// # Errors
    /// Fails if there is none.
    pub(crate) fn path_to(&self, peer: IpAddr) -> Result<Arc<Path>, Errno> {
        let hca = self.queue_pair.hca;
        let entry = lookup::own(hca, self.ip)?;
        let remote = lookup::gid_of_peer(hca, &entry, peer);
        let route =
            MadRoute { local: entry.gid, remote, traffic_class: 0, hop_limit: HOP_LIMIT, flow_label: 0 };
        path_of(shared_with(self.ip)?.pd(), &address_vector(hca, &route))
    }

    /// Sends a datagram, which fits a packet. Fails with EAGAIN if there is no room now.
    pub(crate) fn send(
        &mut self,
        header: &[u8],
        from: &mut Buffers<'_>,
        to: UdDestination,
    ) -> Result<usize, Errno> {
        let length = from.left();
        if header.len() + length > BUFFER_BYTES as usize {
            return Err(Errno(libc::EMSGSIZE));
        }
        let buffer = self.free.pop().ok_or(Errno(libc::EAGAIN))?;
        // The buffer is free, so its bytes are not in use.
        let bytes =
            self.outgoing.run((buffer * BUFFER_BYTES) as usize, header.len() + length).ok_or(INVALID)?;
        bytes.write(header);
        from.gather(bytes.after(header.len()));
        let sges = [Sge {
            address: self.outgoing.address(buffer * BUFFER_BYTES),
            length: (header.len() + length) as u32,
            lkey: self.outgoing.lkey(),
        }];
        let mut request = SendRequest::new(buffer.into(), SendOpcode::Send);
        request.flags |= SendFlags::SIGNALED;
        request.sges = &sges;
        request.ud = Some(UdDestination { qkey: DATAGRAM_Q_KEY, ..to });
        if let Err(error) = self.queue_pair.hca.post_send(self.queue_pair.number, &request) {
            self.free.push(buffer);
            return Err(error.into());
        }
        Ok(length)
    }

    /// Takes completions, and passes each datagram with its source to `each`. Returns whether there were any.
    pub(crate) fn poll(&mut self, mut each: impl FnMut(Source, &[u8])) -> bool {
        let mut batch = [WorkCompletion::default(); BATCH];
        let count = self.queue_pair.hca.poll_cq(&self.queue_pair.queue, &mut batch);
        for completion in batch.iter().take(count) {
            let buffer = completion.wr_id as u32;
            if completion.wr_id & RECEIVE == 0 {
                self.free.push(buffer);
                continue;
            }
            if completion.status != WcStatus::Success {
                continue;
            }
            let (begin, length) =
                (buffer * (BUFFER_BYTES + GRH) + GRH, completion.byte_len.saturating_sub(GRH));
            let mut bytes = vec![0; length.min(BUFFER_BYTES) as usize];
            if let Some(received) = self.incoming.run(begin as usize, bytes.len()) {
                received.read(&mut bytes);
                if let Some((source, data)) = Source::parse(&bytes) {
                    each(source, data);
                }
            }
            // If this fails, the queue pair is in error and receives no more datagrams.
            let _ = self.post_receive(buffer);
        }
        count > 0
    }
}
