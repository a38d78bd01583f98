//! Completion queues and shared receive queues of a device.

use std::sync::Arc;

use crate::objects::completion_channel::CompletionChannel;
use crate::objects::completion_queue::{CompletionQueue, CqPushOutcome};
use crate::objects::srq::{Srq, SrqAttributes, SrqChange, XrcSrq};
use crate::objects::tag_list::TagList;
use pumice_model::event::Event;
use pumice_platform::clock::Clock;
use pumice_platform::error::ResourceError;
use pumice_platform::event_queue::EventAccount;
use pumice_platform::table::{Handle, check_room};
use pumice_transport::event::Topic;
use pumice_transport::types::{RecvRequest, WorkCompletion};

use super::tables::{CqEntry, NO_OBJECT, ObjectTables, Receives, Resources, check_size};
use super::users::check_unused;

/// The parameters of a completion queue (`ibv_create_cq`).
#[derive(Debug, Clone, Default)]
pub struct CqSetup {
    /// Number of entries.
    pub depth: u32,
    /// Completion vector; all vectors are alike.
    pub comp_vector: u32,
    /// The application's value for the queue.
    pub cookie: u64,
    /// The channel that the queue's events come to.
    pub channel: Option<Arc<CompletionChannel>>,
    /// The clock that stamps its completions.
    pub clock: Option<Clock>,
    /// True if arming makes an event at once for completions that came after the application's last poll
    /// found nothing, as in adapters that compare with what was polled.
    pub fires_late: bool,
    /// True if a full queue loses its oldest completion instead of failing.
    pub overwrites: bool,
    /// True if fault plans do not count the queue, because the program has not created it.
    pub uncounted: bool,
}

/// The parameters of a shared receive queue (`ibv_create_srq_ex`).
#[derive(Debug, Clone, Copy)]
pub struct SrqSetup {
    /// Protection domain of its buffers.
    pub pd: Handle,
    /// Most requests in the queue.
    pub max_wr: u32,
    /// Most elements of one request.
    pub max_sge: u32,
    /// The application's value for the queue.
    pub cookie: u64,
    /// For an XRC SRQ: its XRC domain and its completion queue.
    pub xrc: Option<(Handle, Handle)>,
    /// For an SRQ that matches tags: its completion queue, and the most buffers with tags.
    pub tags: Option<(Handle, u32)>,
}

impl Resources {
    /// Adds an entry that is no completion of a queue pair to a completion queue. Returns false if it is full
    /// or gone.
    pub(crate) fn push_note(&mut self, cq: u32, note: WorkCompletion) -> bool {
        let Some(entry) = self.objects.cqs.at(cq) else { return false };
        if entry.cq.len() >= entry.cq.depth() as usize {
            return false;
        }
        self.completions.new_completions = true;
        match entry.cq.push_of(0, &note, 0, true) {
            CqPushOutcome::Stored | CqPushOutcome::Overwrote => true,
            CqPushOutcome::EventBy(due_ns) => {
                self.delay_event(cq, due_ns);
                true
            }
            CqPushOutcome::Overrun | CqPushOutcome::InError => false,
        }
    }

    /// Creates a completion queue.
    ///
    /// # Errors
    /// `Invalid`: a depth or completion vector out of range. `NoMemory`: the table is full, or there is no
    /// memory.
    pub fn create_cq(&mut self, setup: CqSetup) -> Result<Arc<CompletionQueue>, ResourceError> {
        //= linux:rxe_cq.c#rxe_cq_chk_attr
        //| The depth of a completion queue is at least 1 and at most the limit of the device.
        check_size("completion queue depth", setup.depth, 1, self.objects.limits.max_cqe)?;
        //= man:ibv_create_cq
        //| The completion vector is less than the number of vectors.
        check_size(
            "completion vector",
            setup.comp_vector,
            0,
            self.objects.limits.num_comp_vectors.max(1) - 1,
        )?;
        let common = self.completions.cq_common.clone();
        let ordinal = self.created.cqs.add().0;
        let counted = (!setup.uncounted).then(|| self.created.counted_cqs.add().0);
        let CqSetup { depth, cookie, channel, clock, fires_late, overwrites, .. } = setup;
        let handle = self.objects.cqs.try_insert_with(|handle| {
            let mut cq = CompletionQueue::new(handle, depth, cookie, channel, common, clock, fires_late)?;
            if overwrites {
                cq = cq.overwriting();
            }
            let cq = cq.decided(ordinal, counted)?;
            Ok(CqEntry { cq: Arc::new(cq), users: 0, ordinal: counted })
        })?;
        self.created.uncounted_cqs += u32::from(counted.is_none());
        Ok(Arc::clone(&self.objects.cqs.require(handle)?.cq))
    }

    /// Changes the depth of a completion queue.
    ///
    /// # Errors
    /// `Invalid`: out of range, less than the number of its completions, or a stale handle.
    pub fn resize_cq(&mut self, cq: Handle, depth: u32) -> Result<(), ResourceError> {
        check_size("completion queue depth", depth, 1, self.objects.limits.max_cqe)?;
        // A delayed completion may count as being in the queue already.
        self.drain_stores();
        self.objects.cqs.require(cq)?.cq.resize(depth)
    }

    /// Returns the completion queue with this handle.
    pub fn cq(&self, cq: Handle) -> Option<&Arc<CompletionQueue>> {
        self.objects.cqs.get(cq).map(|entry| &entry.cq)
    }

    /// Reports whether queue pairs or XRC SRQs use a completion queue; false if there is no such queue.
    pub fn cq_is_used(&self, cq: Handle) -> bool {
        self.objects.cqs.get(cq).is_some_and(|entry| entry.users > 0)
    }

    /// Destroys a completion queue. Without the engine's lock, call
    /// [`CompletionQueue::wait_all_acked`] on it afterwards.
    ///
    /// # Errors
    /// `Busy`: queue pairs or XRC SRQs use it. `Invalid`: a stale handle.
    pub fn destroy_cq(&mut self, cq: Handle) -> Result<Arc<CompletionQueue>, ResourceError> {
        self.drain_stores();
        let entry = self.objects.cqs.require(cq)?;
        let name = format!("completion queue {}", cq.index);
        //= man:ibv_create_cq
        //| A completion queue that queue pairs use cannot be destroyed.
        check_unused(&name, entry.users, || self.objects.users_of_cq(cq.index))?;
        let (queue, is_own) = (Arc::clone(&entry.cq), entry.ordinal.is_none());
        self.created.uncounted_cqs -= u32::from(is_own);
        self.objects.cqs.remove(cq);
        queue.detach_channel();
        self.port.async_events.purge(queue.async_account());
        Ok(queue)
    }

    /// Creates a shared receive queue.
    ///
    /// # Errors
    /// `Invalid`: a size out of range, a stale handle. `NoMemory`: a table is full.
    pub fn create_srq(&mut self, setup: &SrqSetup) -> Result<Handle, ResourceError> {
        //= linux:rxe_srq.c#rxe_srq_chk_init
        //| The sizes of a shared receive queue are within the limits of the device.
        check_size("SRQ depth", setup.max_wr, 1, self.objects.limits.max_srq_wr)?;
        check_size("SRQ scatter/gather elements", setup.max_sge, 0, self.objects.limits.max_srq_sge)?;
        self.objects.pds.require(setup.pd)?;
        check_room("shared receive queues", self.objects.srq_count as usize, self.objects.limits.max_srq)?;
        let tags = setup.tags.map(|(cq, most)| self.check_tags(cq, most)).transpose()?;
        let xrc = match setup.xrc {
            Some((xrcd, cq)) => {
                let domain = self.objects.xrc.domain_of(xrcd)?;
                self.objects.cqs.require(cq)?;
                let place = self.objects.xrc_srqs.insert(NO_OBJECT)?;
                let number = self.objects.number_base | (place.index + 1);
                Some((XrcSrq { xrcd: domain, opened: xrcd, cq: cq.index, number }, place, xrcd, cq))
            }
            None => None,
        };
        let SrqSetup { pd, max_wr, max_sge, cookie, .. } = *setup;
        let mut srq = Srq::new(pd.index, max_wr, max_sge, cookie, xrc.map(|(side, ..)| side));
        tags.into_iter().for_each(|tags| srq.match_tags(tags));
        let made = srq.make_room().and_then(|()| {
            let srq = srq.numbered(self.created.srqs.add().0);
            self.objects.receives.insert(Receives::Shared(Box::new(srq)))
        });
        match (&made, xrc) {
            (Ok(handle), Some((_, place, xrcd, cq))) => {
                if let Some(index) = self.objects.xrc_srqs.get_mut(place) {
                    *index = handle.index;
                }
                self.objects.xrc.use_open(xrcd);
                self.objects.use_cq(cq);
            }
            (Err(_), Some((_, place, ..))) => {
                self.objects.xrc_srqs.remove(place);
            }
            (_, None) => {}
        }
        if made.is_ok() {
            self.objects.srq_count += 1;
            self.objects.use_pd(pd);
            setup.tags.into_iter().for_each(|(cq, _)| self.objects.use_cq(cq));
        }
        made
    }

    /// Changes depth and limit of a shared receive queue.
    ///
    /// # Errors
    /// As described at [`SrqChange`]'s fields: `Invalid`, nothing changed.
    pub fn modify_srq(&mut self, srq: Handle, change: SrqChange) -> Result<(), ResourceError> {
        let most = self.objects.limits.max_srq_wr;
        self.objects.srq_mut(srq)?.modify(change, most)
    }

    /// Posts a request to a shared receive queue.
    ///
    /// # Errors
    /// `Invalid`: too many elements, a stale handle. `NoMemory`: the queue is full.
    #[inline]
    pub fn post_srq_recv(&mut self, srq: Handle, request: &RecvRequest<'_>) -> Result<(), ResourceError> {
        self.objects.srq_mut(srq)?.post(request)?;
        if self.listens(Topic::Posts) {
            self.listeners.subscribers.emit(&Event::SharedRecvPosted { srq: srq.index, request });
        }
        Ok(())
    }

    /// Returns the sizes and the armed limit of a shared receive queue.
    ///
    /// # Errors
    /// `Invalid`: a stale handle.
    pub fn query_srq(&self, srq: Handle) -> Result<SrqAttributes, ResourceError> {
        Ok(self.objects.srq(srq)?.attributes())
    }

    /// Destroys a shared receive queue. Without the engine's lock, call
    /// [`EventAccount::wait_all_acked`] on the result afterwards.
    ///
    /// # Errors
    /// `Busy`: queue pairs use it. `Invalid`: a stale handle.
    pub fn destroy_srq(&mut self, handle: Handle) -> Result<Arc<EventAccount>, ResourceError> {
        self.drain_stores();
        let srq = self.objects.srq(handle)?;
        let name = format!("shared receive queue {}", handle.index);
        //= man:ibv_create_srq
        //| A shared receive queue that queue pairs use cannot be destroyed.
        check_unused(&name, srq.users(), || self.objects.users_of_srq(handle))?;
        let (pd, xrc, account) = (srq.pd(), srq.xrc(), Arc::clone(srq.account()));
        if let Some(cq) = srq.tags().map(TagList::cq) {
            self.objects.release_cq(cq);
        }
        self.objects.receives.remove(handle);
        self.objects.srq_count -= 1;
        self.objects.release_pd(pd);
        if let Some(xrc) = xrc {
            let place = self.objects.xrc_srqs.handle_at((xrc.number & 0xffff).wrapping_sub(1));
            place.map(|place| self.objects.xrc_srqs.remove(place));
            self.objects.xrc.release_open(xrc.opened);
            self.objects.release_cq(xrc.cq);
        }
        self.port.async_events.purge(&account);
        self.listeners.subscribers.emit(&Event::SrqDestroyed { srq: handle.index });
        Ok(account)
    }
}

fn not_shared() -> ResourceError {
    ResourceError::invalid("a queue pair's receive queue was given where a shared receive queue belongs")
}

impl ObjectTables {
    /// Returns the shared receive queue with this handle.
    ///
    /// # Errors
    /// `Invalid`: a stale handle.
    pub(crate) fn srq(&self, srq: Handle) -> Result<&Srq, ResourceError> {
        match self.receives.require(srq)? {
            Receives::Shared(srq) => Ok(srq),
            Receives::Own(_) => Err(not_shared()),
        }
    }

    pub(super) fn srq_mut(&mut self, srq: Handle) -> Result<&mut Srq, ResourceError> {
        match self.receives.require_mut(srq)? {
            Receives::Shared(srq) => Ok(srq),
            Receives::Own(_) => Err(not_shared()),
        }
    }

    pub(super) fn use_cq(&mut self, cq: Handle) {
        if let Some(entry) = self.cqs.get_mut(cq) {
            entry.users += 1;
        }
    }

    pub(super) fn release_cq(&mut self, cq: u32) {
        if let Some(entry) = self.cqs.at_mut(cq) {
            entry.users = entry.users.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use pumice_platform::limits::Limits;

    use super::*;

    fn resources() -> Resources {
        Resources::new(Limits { max_cqe: 100, max_srq_wr: 50, ..Limits::default() }).unwrap()
    }

    fn cq(depth: u32) -> CqSetup {
        CqSetup { depth, ..CqSetup::default() }
    }

    #[test]
    fn completion_queue_sizes_are_checked() {
        let mut resources = resources();
        for bad in [cq(0), cq(101), CqSetup { comp_vector: Limits::default().num_comp_vectors, ..cq(1) }] {
            assert_eq!(resources.create_cq(bad).unwrap_err().errno(), libc::EINVAL);
        }
        let queue = resources.create_cq(cq(100)).unwrap();
        assert_eq!(queue.depth(), 100);
        resources.resize_cq(queue.handle(), 1).unwrap();
        assert_eq!(queue.depth(), 1);
        assert_eq!(resources.resize_cq(queue.handle(), 0).unwrap_err().errno(), libc::EINVAL);
        resources.destroy_cq(queue.handle()).unwrap().wait_all_acked();
        assert_eq!(resources.destroy_cq(queue.handle()).unwrap_err().errno(), libc::EINVAL);
    }

    #[test]
    fn a_channel_is_used_until_its_queues_are_destroyed() {
        let mut resources = resources();
        let channel = Arc::new(CompletionChannel::new().unwrap());
        let setup = CqSetup { channel: Some(Arc::clone(&channel)), ..cq(1) };
        let queue = resources.create_cq(setup).unwrap();
        assert_eq!(channel.check_unused().unwrap_err().errno(), libc::EBUSY);
        resources.destroy_cq(queue.handle()).unwrap();
        channel.check_unused().unwrap();
    }

    #[test]
    fn an_xrc_srq_uses_its_domains_and_its_completion_queue() {
        let mut resources = resources();
        resources.set_number_base(0x05_0000);
        let (pd, xrcd) = (resources.objects.alloc_pd().unwrap(), resources.open_xrcd().unwrap());
        let queue = resources.create_cq(cq(1)).unwrap();
        let setup =
            SrqSetup { pd, max_wr: 4, max_sge: 1, cookie: 0, xrc: Some((xrcd, queue.handle())), tags: None };
        let srq = resources.create_srq(&setup).unwrap();
        assert_eq!(resources.objects.srq(srq).unwrap().xrc().unwrap().number, 0x05_0001);
        assert_eq!(resources.objects.dealloc_pd(pd).unwrap_err().errno(), libc::EBUSY);
        assert_eq!(resources.close_xrcd(xrcd).unwrap_err().errno(), libc::EBUSY);
        assert_eq!(resources.destroy_cq(queue.handle()).unwrap_err().errno(), libc::EBUSY);
        resources.destroy_srq(srq).unwrap().wait_all_acked();
        resources.destroy_cq(queue.handle()).unwrap();
        resources.close_xrcd(xrcd).unwrap();
        resources.objects.dealloc_pd(pd).unwrap();
        assert_eq!(resources.create_srq(&setup).unwrap_err().errno(), libc::EINVAL);
    }

    #[test]
    fn shared_receive_queue_sizes_are_checked() {
        let mut resources = resources();
        let pd = resources.objects.alloc_pd().unwrap();
        let good = SrqSetup { pd, max_wr: 2, max_sge: 0, cookie: 0, xrc: None, tags: None };
        for bad in [
            SrqSetup { max_wr: 0, ..good },
            SrqSetup { max_wr: 51, ..good },
            SrqSetup { max_sge: 33, ..good },
        ] {
            assert_eq!(resources.create_srq(&bad).unwrap_err().errno(), libc::EINVAL);
        }
        let srq = resources.create_srq(&good).unwrap();
        let request = RecvRequest { wr_id: 1, sges: &[] };
        resources.post_srq_recv(srq, &request).unwrap();
        resources.post_srq_recv(srq, &request).unwrap();
        assert_eq!(resources.post_srq_recv(srq, &request).unwrap_err().errno(), libc::ENOMEM);
        resources.modify_srq(srq, SrqChange { max_wr: Some(3), limit: Some(3) }).unwrap();
        resources.post_srq_recv(srq, &request).unwrap();
        assert_eq!(resources.query_srq(srq), Ok(SrqAttributes { max_wr: 3, max_sge: 0, limit: 3 }));
        resources.destroy_srq(srq).unwrap();
        assert_eq!(resources.query_srq(srq).unwrap_err().errno(), libc::EINVAL);
        resources.objects.dealloc_pd(pd).unwrap();
    }
}
