//! Shared receive queues.

use std::sync::Arc;

use pumice_platform::error::ResourceError;
use pumice_platform::table::Handle;
use pumice_transport::host::RecvWqe;
use pumice_transport::types::RecvRequest;

use crate::objects::recv_queue::RecvQueue;
use crate::objects::tag_list::{TagList, TagSetup};
use pumice_platform::event_queue::EventAccount;

/// The XRC properties of a shared receive queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct XrcSrq {
    /// XRC domain.
    pub xrcd: u32,
    /// Open of the domain through which it was made.
    pub opened: Handle,
    /// Completion queue of everything received through it.
    pub cq: u32,
    /// Number by which peers name it (24 bits).
    pub number: u32,
}

/// The current attributes of a shared receive queue (`ibv_query_srq`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SrqAttributes {
    /// Number of requests that fit.
    pub max_wr: u32,
    /// Largest number of elements of one request.
    pub max_sge: u32,
    /// Armed limit; 0 if none, and after its event.
    pub limit: u32,
}

/// Changes of a shared receive queue (`ibv_modify_srq`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SrqChange {
    /// Another depth.
    pub max_wr: Option<u32>,
    /// Limit to arm; 0 disarms.
    pub limit: Option<u32>,
}

/// A receive queue that any number of queue pairs take from.
#[derive(Debug)]
pub struct Srq {
    queue: RecvQueue,
    pd: u32,
    xrc: Option<XrcSrq>,
    tags: Option<Box<TagList>>,
    limit: u32,
    cookie: u64,
    #[doc(hidden)]
    pub users: u32,
    /// Number of shared receive queues that were made before.
    pub ordinal: u32,
    failed: bool,
    account: Arc<EventAccount>,
}

impl Srq {
    /// Creates an empty queue; the caller has checked the sizes against the device's limits.
    pub fn new(pd: u32, depth: u32, max_sge: u32, cookie: u64, xrc: Option<XrcSrq>) -> Srq {
        Srq {
            queue: RecvQueue::new(depth, max_sge),
            pd,
            xrc,
            tags: None,
            limit: 0,
            cookie,
            users: 0,
            ordinal: 0,
            failed: false,
            account: Arc::new(EventAccount::new()),
        }
    }

    /// Allocates memory as [`RecvQueue::make_room`] does.
    ///
    /// # Errors
    /// Fails with `NoMemory` if the memory cannot be allocated.
    pub fn make_room(&mut self) -> Result<(), ResourceError> {
        self.queue.make_room()
    }

    /// Sets the number of queues that were made before.
    pub fn numbered(self, ordinal: u32) -> Srq {
        Srq { ordinal, ..self }
    }

    /// Returns the number of shared receive queues that were made before it.
    pub const fn ordinal(&self) -> u32 {
        self.ordinal
    }

    /// Makes the queue fail: it gives and takes nothing any more.
    pub const fn fail(&mut self) {
        self.failed = true;
    }

    /// Disarms the limit.
    pub const fn disarm(&mut self) {
        self.limit = 0;
    }

    /// Returns the protection domain of its buffers.
    pub const fn pd(&self) -> u32 {
        self.pd
    }

    /// Returns the application's cookie.
    pub const fn cookie(&self) -> u64 {
        self.cookie
    }

    /// Returns its XRC properties, if it has some.
    pub const fn xrc(&self) -> Option<XrcSrq> {
        self.xrc
    }

    /// Makes it match the tags of messages.
    pub fn match_tags(&mut self, setup: TagSetup) {
        self.tags = Some(Box::new(TagList::new(setup)));
    }

    /// Returns its list of tags, if it matches them.
    pub fn tags(&self) -> Option<&TagList> {
        self.tags.as_deref()
    }

    /// Returns its list of tags for changes, if it matches them.
    pub fn tags_mut(&mut self) -> Option<&mut TagList> {
        self.tags.as_deref_mut()
    }

    /// Reports whether it has failed.
    pub const fn is_failed(&self) -> bool {
        self.failed
    }

    /// Returns the account of its asynchronous events.
    pub const fn account(&self) -> &Arc<EventAccount> {
        &self.account
    }

    /// Returns the number of requests posted and not taken.
    pub const fn len(&self) -> u32 {
        self.queue.len()
    }

    /// Reports whether nothing is posted.
    pub const fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Reports the same as [`RecvQueue::is_short`].
    pub const fn is_short(&self) -> bool {
        self.queue.is_short()
    }

    /// Returns its sizes and armed limit.
    pub const fn attributes(&self) -> SrqAttributes {
        SrqAttributes { max_wr: self.queue.depth(), max_sge: self.queue.max_sge(), limit: self.limit }
    }

    /// Posts a request.
    ///
    /// # Errors
    /// Fails as [`RecvQueue::post`] does, and with `Invalid` if the queue has failed.
    pub fn post(&mut self, request: &RecvRequest<'_>) -> Result<(), ResourceError> {
        if self.failed {
            return Err(ResourceError::invalid(
                "the shared receive queue has failed, as SRQ_ERR told: destroy it".to_owned(),
            ));
        }
        self.queue.post(request)
    }

    /// Changes depth and limit, both or neither. An armed limit fires when a request is taken, not when it is
    /// armed.
    ///
    /// # Errors
    /// Fails with `Invalid` for a depth above `most_wr`, of 0, below the limit or below what is posted, and
    /// for a limit above the depth; with `NoMemory`.
    pub fn modify(&mut self, change: SrqChange, most_wr: u32) -> Result<(), ResourceError> {
        let depth = change.max_wr.unwrap_or(self.queue.depth());
        if change.max_wr.is_some() && (depth == 0 || depth > most_wr) {
            return Err(ResourceError::invalid(format!("SRQ depth {depth} is not within 1..={most_wr}")));
        }
        //= linux:rxe_srq.c#rxe_srq_chk_attr
        //| The depth of a shared receive queue is not below its armed limit.
        if change.max_wr.is_some() && depth < self.limit {
            return Err(ResourceError::invalid(format!(
                "SRQ depth {depth} is less than its armed limit {}; disarm it first",
                self.limit
            )));
        }
        //= man:ibv_modify_srq
        //| A new limit arms the queue for one event.
        let limit = change.limit.unwrap_or(self.limit);
        //= linux:rxe_srq.c#rxe_srq_chk_attr
        //| The limit of a shared receive queue is at most its depth.
        if limit > depth {
            return Err(ResourceError::invalid(format!("SRQ limit {limit} is more than its depth {depth}")));
        }
        if change.max_wr.is_some() {
            self.queue.resize(depth)?;
        }
        self.limit = limit;
        Ok(())
    }

    /// Takes the oldest request.
    pub fn take(&mut self, into: &mut RecvWqe) -> SrqTake {
        if self.failed || !self.queue.take(into) {
            return SrqTake::Empty;
        }
        into.pd = self.pd;
        //= statement:44
        //| The limit fires once, when fewer requests than the limit are left.
        if self.queue.len() < self.limit {
            //= linux:rxe_resp.c#get_srq_wqe
            //| The limit is 0 after its event.
            self.limit = 0;
            return SrqTake::BelowLimit;
        }
        SrqTake::Request
    }

    #[doc(hidden)]
    pub const fn users(&self) -> u32 {
        self.users
    }

    #[doc(hidden)]
    pub const fn attach(&mut self) {
        self.users += 1;
    }

    #[doc(hidden)]
    pub const fn detach(&mut self) {
        self.users = self.users.saturating_sub(1);
    }
}

/// The result of taking a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SrqTake {
    /// No request is posted.
    Empty,
    /// A request was taken, and the limit has not fired.
    Request,
    /// A request was taken, and fewer than the armed limit are left: raise the event.
    BelowLimit,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn srq(depth: u32, posted: u64) -> Srq {
        let mut srq = Srq::new(7, depth, 1, 1, None);
        for wr_id in 0..posted {
            srq.post(&RecvRequest { wr_id, sges: &[] }).unwrap();
        }
        srq
    }

    fn limit(limit: u32) -> SrqChange {
        SrqChange { limit: Some(limit), max_wr: None }
    }

    #[test]
    fn the_limit_fires_once_per_arming_when_a_request_is_taken() {
        let mut srq = srq(8, 5);
        let mut wqe = RecvWqe::default();
        srq.modify(limit(3), 8).unwrap();
        let mut take = |srq: &mut Srq| srq.take(&mut wqe);
        assert_eq!([take(&mut srq), take(&mut srq)], [SrqTake::Request, SrqTake::Request]);
        assert_eq!(srq.attributes().limit, 3);
        assert_eq!(take(&mut srq), SrqTake::BelowLimit);
        assert_eq!(srq.attributes().limit, 0);
        assert_eq!(take(&mut srq), SrqTake::Request);
        srq.modify(limit(8), 8).unwrap();
        assert_eq!(srq.attributes().limit, 8, "arming alone fires nothing");
        assert_eq!(take(&mut srq), SrqTake::BelowLimit);
        assert_eq!(take(&mut srq), SrqTake::Empty);
        assert_eq!(wqe.pd, 7);
    }

    #[test]
    fn modify_changes_both_or_neither() {
        let mut srq = srq(8, 4);
        srq.modify(limit(5), 16).unwrap();
        let change = |max_wr, limit| SrqChange { max_wr, limit };
        for bad in [
            change(Some(0), Some(0)),
            change(Some(17), None),
            change(Some(4), None),
            change(None, Some(9)),
            change(Some(10), Some(11)),
        ] {
            assert_eq!(srq.modify(bad, 16).unwrap_err().errno(), libc::EINVAL, "{bad:?}");
            assert_eq!(srq.attributes(), SrqAttributes { max_wr: 8, max_sge: 1, limit: 5 });
        }
        srq.modify(limit(0), 16).unwrap();
        assert_eq!(srq.modify(change(Some(3), Some(1)), 16).unwrap_err().errno(), libc::EINVAL);
        assert_eq!(srq.attributes(), SrqAttributes { max_wr: 8, max_sge: 1, limit: 0 });
        srq.modify(change(Some(16), Some(16)), 16).unwrap();
        assert_eq!(srq.attributes(), SrqAttributes { max_wr: 16, max_sge: 1, limit: 16 });
        assert_eq!(srq.len(), 4);
    }
}
