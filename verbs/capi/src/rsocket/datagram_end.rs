//! One end of datagrams: a UD queue pair on one of the host's addresses.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;
use std::sync::Arc;

use pumice_device::hca::Hca;
use pumice_device::objects::completion_channel::CompletionChannel;
use pumice_device::objects::completion_queue::CompletionQueue;
use pumice_transport::cm::MadRoute;
use pumice_transport::path::Path;
use pumice_transport::types::{
    RecvRequest, SendFlags, SendOpcode, SendRequest, Sge, UdDestination, WcStatus, WorkCompletion,
};
use pumice_transport::wire::Qpn;

use super::identifier::{Identifier, PS_UDP};
use super::link::{Completions, QueuePair, Wanted, create_queue_pair};
use super::protocol::datagram::Source;
use super::region::{Buffers, LOCAL, Region};
use crate::calls::address_handle::{ibv_create_ah, ibv_destroy_ah};
use crate::ground::abi::ibv_ah_attr;
use crate::ground::errno::{Errno, INVALID, errno};
use crate::ground::handles::held;
use crate::objects::address_handle::Ah;
use crate::rdma_cm::address;
use crate::rdma_cm::id::QPT_UD;
use crate::rdma_cm::queue_pair::{DATAGRAM_Q_KEY, address_vector};
use crate::rdma_cm::shared::shared;

/// Room for a datagram between queue pairs, its header included. Longer ones go over UDP.
const SLOT: u32 = 2048;
/// What comes before a received datagram.
const GRH: u32 = 40;
const HOP_LIMIT: u8 = 64;
/// Which completions are of receives.
const RECEIVE: u64 = 1 << 32;
const BATCH: usize = 16;

/// An end.
pub(crate) struct End {
    _queue_pair: QueuePair,
    _completions: Completions,
    hca: &'static Hca,
    queue: Arc<CompletionQueue>,
    events: Arc<CompletionChannel>,
    number: Qpn,
    outgoing: Region,
    incoming: Region,
    /// Slots of the outgoing region that are free.
    free: Vec<u32>,
    pub(crate) ip: IpAddr,
    longest: usize,
    slots: usize,
    armed: bool,
}

impl End {
    /// An end on an address, for so many datagrams in each direction.
    ///
    /// # Errors
    /// It is none of the device's addresses, or there is no more of something.
    pub(crate) fn new(ip: IpAddr, sends: u16, receives: u16) -> Result<End, Errno> {
        let id = Arc::new(Identifier::new(PS_UDP)?);
        id.bind(SocketAddr::new(ip, 0))?;
        let wanted = Wanted { kind: QPT_UD, sends, receives, receive_elements: 1, inline: 0 };
        let (queue_pair, completions, queue, events, number) = create_queue_pair(&id, &wanted)?;
        let shared = shared()?;
        // SAFETY: the shared domain, which is never freed.
        let (outgoing, incoming) = unsafe {
            (
                Region::new(shared.pd, usize::from(sends) * SLOT as usize, LOCAL)?,
                Region::new(shared.pd, usize::from(receives) * (SLOT + GRH) as usize, LOCAL)?,
            )
        };
        let mtu = shared.hca().active_mtu().bytes().min(SLOT as usize);
        let mut end = End {
            _queue_pair: queue_pair,
            _completions: completions,
            hca: shared.hca(),
            queue,
            events,
            number,
            outgoing,
            incoming,
            free: (0..u32::from(sends)).collect(),
            ip,
            longest: mtu,
            slots: sends.into(),
            armed: false,
        };
        for slot in 0..u32::from(receives) {
            end.post_receive(slot)?;
        }
        end.arm();
        Ok(end)
    }

    /// Its queue pair.
    pub(crate) fn qpn(&self) -> u32 {
        self.number.value()
    }

    /// Readable when something has completed.
    pub(crate) fn descriptor(&self) -> RawFd {
        use std::os::fd::{AsFd as _, AsRawFd as _};
        self.events.as_fd().as_raw_fd()
    }

    /// Whether a datagram can be sent now.
    pub(crate) fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    /// Whether all that was sent has left.
    pub(crate) fn is_idle(&self) -> bool {
        self.free.len() == self.slots
    }

    /// Whether a datagram of so many bytes, with its header, fits one packet.
    pub(crate) const fn takes(&self, length: usize) -> bool {
        length <= self.longest
    }

    /// Asks for an event with the next completion.
    pub(crate) fn arm(&mut self) {
        if self.events.try_event().is_some() {
            self.queue.ack_events(1);
            self.armed = false;
        }
        if !self.armed {
            self.hca.req_notify_cq(&self.queue, false);
            self.armed = true;
        }
    }

    fn post_receive(&self, slot: u32) -> Result<(), Errno> {
        let address = self.incoming.address(slot * (SLOT + GRH));
        let sges = [Sge { address, length: SLOT + GRH, lkey: self.incoming.lkey() }];
        let request = RecvRequest { wr_id: RECEIVE | u64::from(slot), sges: &sges };
        Ok(self.hca.post_recv(self.number, &request)?)
    }

    /// The way from here to a peer's queue pair.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn way_to(&self, peer: IpAddr) -> Result<Arc<Path>, Errno> {
        let entry = address::own(self.hca, self.ip)?;
        let (local, remote) = (entry.gid, address::gid_of_peer(self.hca, &entry, peer));
        let route = MadRoute { local, remote, traffic_class: 0, hop_limit: HOP_LIMIT, flow_label: 0 };
        let attributes: ibv_ah_attr = address_vector(self.hca, &route);
        // SAFETY: the shared domain; our own structure; a handle that is destroyed again.
        unsafe {
            let ah = ibv_create_ah(shared()?.pd, (&attributes).into());
            if ah.is_null() {
                return Err(Errno(errno()));
            }
            let path = held::<Ah>(ah)?.path().clone();
            ibv_destroy_ah(ah);
            Ok(path)
        }
    }

    /// Sends a datagram, which fits a packet. EAGAIN: there is no room now.
    ///
    /// # Safety
    /// The buffers are the program's.
    pub(crate) unsafe fn send(
        &mut self,
        header: &[u8],
        from: &mut Buffers<'_>,
        to: UdDestination,
    ) -> Result<usize, Errno> {
        let length = from.left();
        if header.len() + length > SLOT as usize {
            return Err(Errno(libc::EMSGSIZE));
        }
        let slot = self.free.pop().ok_or(Errno(libc::EAGAIN))?;
        let place = self.outgoing.run((slot * SLOT) as usize, SLOT as usize).ok_or(INVALID)?;
        // SAFETY: a slot that nobody else uses, with room for both; the caller's promise.
        unsafe {
            std::ptr::copy_nonoverlapping(header.as_ptr(), place, header.len());
            from.gather(place.add(header.len()), length);
        }
        let sges = [Sge {
            address: self.outgoing.address(slot * SLOT),
            length: (header.len() + length) as u32,
            lkey: self.outgoing.lkey(),
        }];
        let mut request = SendRequest::new(slot.into(), SendOpcode::Send);
        request.flags |= SendFlags::SIGNALED;
        request.sges = &sges;
        request.ud = Some(UdDestination { qkey: DATAGRAM_Q_KEY, ..to });
        if let Err(error) = self.hca.post_send(self.number, &request) {
            self.free.push(slot);
            return Err(error.into());
        }
        Ok(length)
    }

    /// Takes what has completed; each datagram with its source. Whether anything has.
    pub(crate) fn poll(&mut self, mut each: impl FnMut(Source, &[u8])) -> bool {
        let mut batch = [WorkCompletion::default(); BATCH];
        let count = self.hca.poll_cq(&self.queue, &mut batch);
        for completion in batch.iter().take(count) {
            let slot = completion.wr_id as u32;
            if completion.wr_id & RECEIVE == 0 {
                self.free.push(slot);
                continue;
            }
            if completion.status != WcStatus::Success {
                continue;
            }
            let (begin, length) = (slot * (SLOT + GRH) + GRH, completion.byte_len.saturating_sub(GRH));
            let mut bytes = vec![0; length.min(SLOT) as usize];
            if let Some(place) = self.incoming.run(begin as usize, bytes.len()) {
                // SAFETY: so many bytes of a slot that is not posted.
                unsafe { std::ptr::copy_nonoverlapping(place, bytes.as_mut_ptr(), bytes.len()) };
                if let Some((source, data)) = Source::parse(&bytes) {
                    each(source, data);
                }
            }
            // Without it there is one fewer: the queue pair is in error then.
            let _ = self.post_receive(slot);
        }
        count > 0
    }
}
