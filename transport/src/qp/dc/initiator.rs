//! The side that sends messages (DCI): streams, each with an order of its own.

use alloc::vec::Vec;
use core::net::IpAddr;

use super::header::Header;
use super::message::Waiting;
use super::stream::{State, Stream};
use crate::host::{Host, Transmit};
use crate::qp::outbound::Progress;
use crate::qp::send_queue::SendWqe;
use crate::qp::settings::Settings;
use crate::types::{DcStreams, SendRequest, WcStatus};
use crate::wire::{Psn, Qpn};

/// Parts of all messages that are under way at once.
const MOST_PARTS: u32 = 256;

/// An initiator.
#[derive(Debug)]
pub(in crate::qp) struct Initiator {
    capacity: usize,
    made_with: Option<DcStreams>,
    streams: Vec<Stream>,
    /// Requests of all streams that ended without a completion since the last one.
    unreported: u32,
    /// Which of them sends first.
    first: usize,
    next_psn: Psn,
}

impl Initiator {
    pub(super) fn new(capacity: u32, made_with: Option<DcStreams>) -> Initiator {
        let count = made_with.map_or(1, DcStreams::concurrent);
        Initiator {
            capacity: capacity as usize,
            made_with,
            streams: (0..count).map(Stream::new).collect(),
            unreported: 0,
            first: 0,
            next_psn: Psn::new(0),
        }
    }

    pub(super) const fn made_with(&self) -> Option<DcStreams> {
        self.made_with
    }

    pub(super) fn is_full(&self) -> bool {
        self.streams.iter().map(Stream::count).sum::<usize>() >= self.capacity
    }

    pub(super) fn count(&self) -> usize {
        self.streams.iter().map(Stream::count).sum::<usize>() + self.unreported as usize
    }

    pub(super) fn is_idle(&self) -> bool {
        self.streams.iter().all(Stream::is_idle)
    }

    /// The stream of a number: higher ones begin anew, as adapters have it.
    fn stream(&mut self, id: u16) -> Option<&mut Stream> {
        let count = self.streams.len().max(1);
        self.streams.get_mut(usize::from(id) % count)
    }

    /// Lets each stream do something, and complete requests of all by it.
    fn lend(&mut self, mut run: impl FnMut(&mut Stream)) {
        for stream in &mut self.streams {
            stream.unreported = core::mem::take(&mut self.unreported);
            run(stream);
            self.unreported = core::mem::take(&mut stream.unreported);
        }
    }

    /// Takes a request, which was checked, of this length.
    pub(super) fn post<H: Host>(
        &mut self,
        settings: &Settings,
        request: &SendRequest<'_>,
        length_bytes: u32,
        fault: Option<WcStatus>,
        host: &mut H,
    ) {
        let (Some(to), Some(dc)) = (request.ud.clone(), request.dc) else { return };
        let signaled = settings.signal_all || request.flags.contains(crate::types::SendFlags::SIGNALED);
        let wqe = SendWqe::of(request, signaled, length_bytes);
        let Some(stream) = self.stream(dc.stream) else { return };
        stream.post(Waiting { wqe, to, access_key: dc.access_key, fault });
        if stream.state == State::Failed {
            self.lend(|stream| {
                if stream.state == State::Failed {
                    stream.flush(settings, host);
                }
            });
        }
    }

    /// A stream that has failed works again.
    pub(super) fn reset_stream(&mut self, id: u16) {
        if let Some(stream) = self.stream(id).filter(|stream| stream.state == State::Failed) {
            stream.reset();
        }
    }

    /// So many streams have failed that the queue pair has.
    pub(super) fn has_failed(&self) -> bool {
        let failed = self.streams.iter().filter(|stream| stream.state == State::Failed).count();
        failed >= self.made_with.map_or(1, DcStreams::errored).into()
    }

    /// An answer came.
    pub(super) fn handle<H: Host>(
        &mut self,
        settings: &Settings,
        from: (IpAddr, Qpn),
        (header, data): (&Header, &[u8]),
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
        self.streams.iter().filter_map(Stream::deadline_ns).min()
    }

    pub(super) fn handle_timeout<H: Host>(&mut self, settings: &Settings, now_ns: u64, host: &mut H) {
        self.lend(|stream| stream.handle_timeout(settings, now_ns, host));
    }

    pub(super) fn wants_to_send(&self) -> bool {
        self.streams.iter().any(Stream::wants_to_send)
    }

    pub(super) fn transmit<H: Host, T: Transmit>(
        &mut self,
        settings: &Settings,
        draining: bool,
        now_ns: u64,
        host: &mut H,
        sink: &mut T,
    ) -> Progress {
        let under_way: u32 = self.streams.iter().map(Stream::parts_under_way).sum();
        let mut room_parts = MOST_PARTS.saturating_sub(under_way);
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

    /// Everything that was posted ends as flushed.
    pub(super) fn flush<H: Host>(&mut self, settings: &Settings, host: &mut H) {
        self.lend(|stream| stream.flush(settings, host));
    }
}
