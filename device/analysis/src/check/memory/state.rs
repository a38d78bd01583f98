//! The state of the memory that a program gives to its device: freed memory, replaced messages, polled data.
//!
//! The check for messages that another one has replaced in the same buffer before the program polled their
//! completion.
//!
//! Memory that the program frees, and memory that is filled so that programs notice that they read too early.
//!
//! Records of received data whose completion the program has polled, and of which a word is watched, because
//! reading it may be an error.
//!
//! A program may post one buffer in many receives if it ignores the data. So a finding is reported only when
//! the program reads the buffer: a word of it is watched from the poll of the first completion until the
//! buffer is posted again.

use std::collections::VecDeque;

use pumice_platform::call_stack::Stack;
use pumice_platform::number_map::NumberMap;
use pumice_platform::outside::data_watch::WatchedWord;
use pumice_transport::types::{RemoteRange, Sge};
use smallvec::SmallVec;

use super::super::context::{CheckContext, FindingParts, related};
use super::super::kind::{BUFFERS_OVERLAP, FREED_WHILE_IN_USE};
use super::payload::{BufferContents, BufferReader, ByteSpan, EarlyUses};
use super::regions::{BufferRole, Regions};
use super::requests::{PostedRequest, PostedRequests, QueueId};

/// A message that another one has replaced in its buffer, and whose completion the program has polled.
#[derive(Debug)]
pub(super) struct ReplacedMessage {
    pub(super) watch: u64,
    pub(super) span: ByteSpan,
    /// The finding to report if the program reads the buffer.
    pub(super) found: FindingParts,
}

/// The UD queue pairs, and the datagram that is watched.
#[derive(Debug, Default)]
pub(super) struct WatchedHeaders {
    pub(super) queue_pairs: NumberMap<u32, UdReceiver>,
    pub(super) watched: Option<WatchedDatagram>,
}

/// A UD queue pair.
#[derive(Debug, Default)]
pub(super) struct UdReceiver {
    /// Receives in the order of their posts: `wr_id`, and the buffer in which they begin.
    pub(super) receives: VecDeque<(u64, Option<ByteSpan>)>,
    /// Number of datagrams that were watched.
    pub(super) watched: u32,
    /// True if the program reads the payload at its offset, or a finding was reported.
    pub(super) is_known: bool,
}

/// A datagram of which a word of the header and one of the payload are watched separately.
#[derive(Debug)]
pub(super) struct WatchedDatagram {
    pub(super) qp: u32,
    pub(super) buffer: ByteSpan,
    /// Watch of the header's word; `None` once the program has read it.
    pub(super) header: Option<u64>,
    /// Watch of the payload's word; `None` once the program has read it.
    pub(super) payload: Option<u64>,
    /// Call stack of the program when it read the header.
    pub(super) read: Stack,
}

/// Returns the longest aligned word in a range of bytes, as near to its beginning as possible.
pub(super) fn word_of(start: u64, end: u64) -> Option<WatchedWord> {
    [8, 4, 2, 1].into_iter().find_map(|bytes: u8| {
        let address = start.checked_next_multiple_of(bytes.into())?;
        let is_inside = address.checked_add(bytes.into())? <= end;
        is_inside.then_some(WatchedWord { address, bytes, by_library: true })
    })
}

/// The memory of a program, as far as its device uses it.
#[derive(Debug, Default)]
pub(in crate::check) struct Memory {
    pub(super) reader: BufferReader,
    /// Bounds that were last notified.
    pub(super) bounds: (u64, u64),
    pub(super) regions: Regions,
    pub(super) requests: PostedRequests,
    /// Memory that the latest request of a peer names, by the number of the queue pair that serves it.
    pub(super) named: NumberMap<u32, RemoteRange>,
    /// Destinations of peers' WRITEs whose packets are arriving, by the numbers of the queue pairs.
    pub(super) arriving: NumberMap<u32, ByteSpan>,
    /// Receives of shared queues whose messages arrive, by the numbers of the queue pairs.
    pub(super) taken: NumberMap<u32, u64>,
    /// Requests whose buffers overlap, and whose completions wait to be polled; oldest first.
    pub(super) landed: VecDeque<LandedData>,
    /// Results of READs and atomics that the program may not use yet.
    pub(super) early_uses: EarlyUses,
    /// A message that another one has replaced, and that the program may read.
    pub(super) replaced: Option<ReplacedMessage>,
    /// Datagrams whose header the program may take for the payload.
    pub(super) headers: WatchedHeaders,
}

/// Data that came into buffers that another request uses, too.
#[derive(Debug)]
pub(super) struct LandedData {
    pub(super) queue: QueueId,
    pub(super) role: BufferRole,
    pub(super) wr_id: u64,
    pub(super) spans: SmallVec<[ByteSpan; 2]>,
    pub(super) contents: BufferContents,
    pub(super) stack: Stack,
    /// The finding to report if the program reads the buffer after another message has come into it.
    pub(super) replaced: Option<FindingParts>,
}

impl LandedData {
    /// Returns the number of its queue pair, if it has one of its own.
    pub(super) const fn queue_pair(&self) -> Option<u32> {
        match self.queue {
            QueueId::Sends(qp) | QueueId::Receives(qp) => Some(qp),
            QueueId::Shared(_) => None,
        }
    }
}

impl Memory {
    /// Notifies of the bounds of posted requests' memory, if they have changed.
    pub(super) fn report_bounds(&mut self, context: &CheckContext) {
        let Some(watch) = context.callbacks.watch else { return };
        if !self.requests.has_changed() {
            return;
        }
        let bounds = self.requests.bounds();
        if bounds != self.bounds {
            self.bounds = bounds;
            watch(bounds.0, bounds.1);
        }
    }

    /// Fills the buffers of a posted receive, which no other request uses.
    pub(super) fn poison(&mut self, context: &CheckContext, posted: &PostedRequest) {
        let Some(fill) = context.callbacks.fill else { return };
        let ranges: Vec<(u64, usize)> =
            posted.spans().map(|span| (span.start, usize::try_from(span.bytes()).unwrap_or(0))).collect();
        // Memory that cannot be written fails the receive when its message comes.
        let _ = fill(&ranges);
    }

    /// Returns the request that uses bytes of a range of memory and is not known to be over. Requests whose
    /// region is deregistered, or whose memory is freed, are left out: they are reported already.
    pub(super) fn outstanding_user(&self, address: u64, bytes: u64) -> Option<u64> {
        let under_way = |identity: &u64| {
            self.requests.at(*identity).is_some_and(|posted| {
                let is_over = posted.is_settled && posted.role == BufferRole::Payload;
                let is_registered = posted.parts.iter().all(|part| self.regions.at(part.key).is_some());
                !is_over && !posted.is_freed && is_registered
            })
        };
        self.requests.overlapping(ByteSpan::new(address, bytes)).into_iter().filter(under_way).min()
    }

    /// Handles memory of a request that the program frees by this call.
    pub(super) fn is_freed(&mut self, context: &mut CheckContext, request: u64, call: &str) {
        let stack = context.here();
        let Some(posted) = self.requests.at_mut(request) else { return };
        (posted.is_freed, posted.at_post) = (true, BufferContents::Unknown);
        let posted = posted.clone();
        let object = self.owner_of(context, posted.queue);
        let (role, wr_id, bytes) = (posted.role.name(), posted.wr_id, posted.bytes());
        let numbers = format!(
            "{call} gives back memory that {role} of {object}, {wr_id:#x}, uses for its {bytes} bytes, and \
             {}",
            posted.reason_in_use()
        );
        let related = vec![related("it was posted here", &posted.stack)];
        context.found(&FREED_WHILE_IN_USE, FindingParts { object, numbers, stack, related });
    }

    /// Handles the poll of the completion of a message that another one has replaced in these ranges: watches
    /// a word of them.
    pub(super) fn replaced_was_polled(
        &mut self,
        context: &CheckContext,
        spans: &[ByteSpan],
        found: FindingParts,
    ) {
        let (Some(span), Some(watchpoints)) = (spans.first().copied(), context.callbacks.watchpoints) else {
            return;
        };
        if self.replaced.is_some() {
            return;
        }
        if let Some(watch) = word_of(span.start, span.end).and_then(|word| (watchpoints.begin)(&[word])) {
            self.replaced = Some(ReplacedMessage { watch, span, found });
        }
    }

    /// Handles an access of the program to a watched word. Returns true, and reports the finding, if `watch`
    /// is that of a replaced message.
    pub(super) fn replaced_was_read(
        &mut self,
        context: &mut CheckContext,
        watch: u64,
        addresses: &[u64],
    ) -> bool {
        let Some(ReplacedMessage { mut found, .. }) =
            self.replaced.take_if(|replaced| replaced.watch == watch)
        else {
            return false;
        };
        let read = context.stack_of(addresses);
        found.related.push(related("the program looked at it here", &read));
        context.found(&BUFFERS_OVERLAP, found);
        true
    }

    /// Handles a receive with these buffers that is posted: the watch of a replaced message in them ends.
    pub(super) fn replaced_is_over(&mut self, context: &CheckContext, sges: &[Sge]) {
        if self.replaced.is_none() {
            return;
        }
        let parts = self.parts_of(context, sges).unwrap_or_default();
        let is_it =
            |replaced: &mut ReplacedMessage| parts.iter().any(|part| part.span.overlaps(replaced.span));
        if let Some(replaced) = self.replaced.take_if(is_it)
            && let Some(watchpoints) = context.callbacks.watchpoints
        {
            (watchpoints.end)(replaced.watch);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_as_long_as_fits() {
        let word = |start, end| word_of(start, end).map(|word| (word.address, word.bytes));
        assert_eq!(word(0x1000, 0x1008), Some((0x1000, 8)));
        assert_eq!(word(0x1004, 0x1018), Some((0x1008, 8)));
        assert_eq!(word(0x1004, 0x100b), Some((0x1004, 4)));
        assert_eq!(word(0x1001, 0x1002), Some((0x1001, 1)));
        assert_eq!([word(0x1001, 0x1001), word(u64::MAX, u64::MAX)], [None, None]);
    }
}
