//! The side that sends messages (DCI): streams, each with an order of its own.

use alloc::collections::TryReserveError;
use alloc::vec::Vec;
use core::net::IpAddr;

use super::header::DcHeader;
use super::message::DcQueuedRequest;
use super::stream::{DcStream, StreamState};
use crate::host::{Host, Transmit};
use crate::qp::outbound::Progress;
use crate::qp::send_queue::SendWqe;
use crate::qp::settings::QpSettings;
use crate::qp::srd::RocePaths;
use crate::types::{DcStreams, SendRequest, UdDestination, WcStatus};
use crate::wire::{Psn, Qpn};

/// Largest number of outstanding parts of all messages.
const MAX_PARTS: u32 = 256;

/// An initiator.
#[derive(Debug)]
pub(in crate::qp) struct Initiator {
    capacity: usize,
    made_with: Option<DcStreams>,
    streams: Vec<DcStream>,
    /// Requests of all streams that ended without a completion since the last one.
    unreported: u32,
    /// Index of the stream that sends first.
    first: usize,
    next_psn: Psn,
    paths: RocePaths,
}

impl Initiator {
    pub(super) fn new(capacity: u32, made_with: Option<DcStreams>) -> Initiator {
        let count = made_with.map_or(1, DcStreams::concurrent);
        Initiator {
            capacity: capacity as usize,
            made_with,
            streams: (0..count).map(DcStream::new).collect(),
            unreported: 0,
            first: 0,
            next_psn: Psn::new(0),
            paths: RocePaths::default(),
        }
    }

    pub(super) const fn made_with(&self) -> Option<DcStreams> {
        self.made_with
    }

    pub(super) fn is_full(&self) -> bool {
        self.streams.iter().map(DcStream::count).sum::<usize>() >= self.capacity
    }

    pub(super) fn count(&self) -> usize {
        self.streams.iter().map(DcStream::count).sum::<usize>() + self.unreported as usize
    }

    pub(super) fn is_idle(&self) -> bool {
        self.streams.iter().all(DcStream::is_idle)
    }

    /// Returns the stream of a number, modulo the number of streams, as on adapters.
    fn stream(&mut self, id: u16) -> Option<&mut DcStream> {
        let count = self.streams.len().max(1);
        self.streams.get_mut(usize::from(id) % count)
    }

    /// Runs a function on each stream, and hands it the count of requests without a completion.
    fn for_each_stream(&mut self, mut run: impl FnMut(&mut DcStream)) {
        for stream in &mut self.streams {
            stream.unreported = core::mem::take(&mut self.unreported);
            run(stream);
            self.unreported = core::mem::take(&mut stream.unreported);
        }
    }

    /// Posts a request of this length, which was checked.
    ///
    /// # Errors
    /// Fails if there is no memory for it; nothing is posted.
    pub(super) fn post<H: Host>(
        &mut self,
        settings: &QpSettings,
        request: &SendRequest<'_>,
        length_bytes: u32,
        fault: Option<WcStatus>,
        host: &mut H,
    ) -> Result<(), TryReserveError> {
        let (Some(ud), Some(dc)) = (&request.ud, request.dc) else { return Ok(()) };
        let to = UdDestination { path: self.paths.of(&ud.path), ..ud.clone() };
        let signaled = settings.signal_all || request.flags.contains(crate::types::SendFlags::SIGNALED);
        let wqe = SendWqe::of(request, signaled, length_bytes)?;
        let Some(stream) = self.stream(dc.stream) else { return Ok(()) };
        stream.post(DcQueuedRequest { wqe, to, access_key: dc.access_key, fault })?;
        if stream.state == StreamState::Failed {
            self.for_each_stream(|stream| {
                if stream.state == StreamState::Failed {
                    stream.flush(settings, host);
                }
            });
        }
        Ok(())
    }

    /// Makes a failed stream work again.
    pub(super) fn reset_stream(&mut self, id: u16) {
        if let Some(stream) = self.stream(id).filter(|stream| stream.state == StreamState::Failed) {
            stream.reset();
        }
    }

    /// Reports whether so many streams have failed that the queue pair fails.
    pub(super) fn has_failed(&self) -> bool {
        let failed = self.streams.iter().filter(|stream| stream.state == StreamState::Failed).count();
        failed >= self.made_with.map_or(1, DcStreams::errored).into()
    }

    /// Handles an answer.
    pub(super) fn handle<H: Host>(
        &mut self,
        settings: &QpSettings,
        from: (IpAddr, Qpn),
        (header, data): (&DcHeader, &[u8]),
        now_ns: u64,
        host: &mut H,
    ) {
        if let Some(stream) = self.streams.get_mut(usize::from(header.stream)) {
            stream.unreported = core::mem::take(&mut self.unreported);
            stream.handle(settings, from, (header, data), now_ns, host);
            self.unreported = core::mem::take(&mut stream.unreported);
        }
    }

    pub(super) fn deadline_ns(&self) -> Option<u64> {
        self.streams.iter().filter_map(DcStream::deadline_ns).min()
    }

    pub(super) fn handle_timeout<H: Host>(&mut self, settings: &QpSettings, now_ns: u64, host: &mut H) {
        self.for_each_stream(|stream| stream.handle_timeout(settings, now_ns, host));
    }

    pub(super) fn wants_to_send(&self) -> bool {
        self.streams.iter().any(DcStream::wants_to_send)
    }

    pub(super) fn transmit<H: Host, T: Transmit>(
        &mut self,
        settings: &QpSettings,
        draining: bool,
        now_ns: u64,
        host: &mut H,
        sink: &mut T,
    ) -> Progress {
        let under_way: u32 = self.streams.iter().map(DcStream::parts_under_way).sum();
        let mut room_parts = MAX_PARTS.saturating_sub(under_way);
        let count = self.streams.len();
        self.first = (self.first + 1) % count.max(1);
        for turn in 0..count {
            let Some(stream) = self.streams.get_mut((self.first + turn) % count) else { break };
            let moment = (draining, now_ns);
            stream.unreported = core::mem::take(&mut self.unreported);
            let progress = stream.transmit(settings, moment, &mut room_parts, &mut self.next_psn, host, sink);
            self.unreported = core::mem::take(&mut stream.unreported);
            if progress == Progress::Blocked {
                return Progress::Blocked;
            }
        }
        Progress::Idle
    }

    /// Completes all posted requests as flushed.
    pub(super) fn flush<H: Host>(&mut self, settings: &QpSettings, host: &mut H) {
        self.for_each_stream(|stream| stream.flush(settings, host));
    }
}
