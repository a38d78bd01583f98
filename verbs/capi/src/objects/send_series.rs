//! Send requests that are assembled between `ibv_wr_start` and `ibv_wr_complete`.

use std::ops::Range;
use std::sync::Arc;

use pumice_transport::types::{QpCapacity, SendFlags, SendRequest, Sge};

use super::memory_window::Mw;
use crate::platform::errno::Errno;

/// Requests, and the elements and inline bytes that they use. The memory is reused for the next series.
pub(crate) struct SendSeries {
    pub(crate) requests: Vec<SeriesRequest>,
    pub(crate) sges: Vec<Sge>,
    pub(crate) inline_data: Vec<u8>,
    pub(crate) refused: Option<Errno>,
    /// Number of calls that must still set fields of the last request, which configures a memory key.
    pub(crate) setters_left: u8,
    /// Largest number of pieces of that key.
    pub(crate) max_pieces: usize,
    /// True if the key may have signatures.
    pub(crate) key_has_signatures: bool,
}

/// A request, and its ranges of the series' elements and bytes.
pub(crate) struct SeriesRequest {
    pub(crate) request: SendRequest<'static>,
    pub(crate) sges: Range<usize>,
    pub(crate) inline_data: Range<usize>,
    /// Window that the request binds.
    pub(crate) window: Option<Arc<Mw>>,
}

impl SendSeries {
    /// Number of requests that there is room for from the beginning.
    const ROOM: u32 = 64;

    pub(crate) fn new(capacity: &QpCapacity) -> SendSeries {
        let room = capacity.max_send_wr.min(SendSeries::ROOM) as usize;
        SendSeries {
            requests: Vec::with_capacity(room),
            sges: Vec::with_capacity(room * 2),
            inline_data: Vec::new(),
            refused: None,
            setters_left: 0,
            max_pieces: 0,
            key_has_signatures: false,
        }
    }

    pub(crate) fn clear(&mut self) {
        self.requests.clear();
        self.sges.clear();
        self.inline_data.clear();
        self.refused = None;
        self.setters_left = 0;
    }

    /// Adds a request without elements and data.
    #[inline]
    pub(crate) fn start(&self, request: SendRequest<'static>) -> SeriesRequest {
        let (sges, inline) = (self.sges.len(), self.inline_data.len());
        SeriesRequest { request, sges: sges..sges, inline_data: inline..inline, window: None }
    }

    /// Returns the operations of the requests, as verbs number them.
    pub(crate) fn opcodes(&self) -> impl Iterator<Item = u32> + '_ {
        self.requests.iter().map(|part| part.request.opcode as u32)
    }

    /// Adds inline data to the last request.
    pub(crate) fn add_inline(&mut self, data: &[u8]) {
        self.inline_data.extend_from_slice(data);
        let end = self.inline_data.len();
        if let Some(last) = self.requests.last_mut() {
            last.request.flags |= SendFlags::INLINE;
            last.inline_data.end = end;
        }
    }
}
