//! Send requests that are being put together between `ibv_wr_start` and `ibv_wr_complete`.

use std::ops::Range;
use std::sync::Arc;

use pumice_transport::types::{QpCapacity, SendFlags, SendRequest, Sge};

use super::memory_window::Mw;
use crate::ground::errno::Errno;

/// Requests, and the elements and inline bytes that they use. The memory is kept for the next series.
pub(crate) struct Series {
    pub(crate) requests: Vec<Part>,
    pub(crate) sges: Vec<Sge>,
    pub(crate) inline_data: Vec<u8>,
    pub(crate) refused: Option<Errno>,
    /// Calls that must still say something of the last request, which configures a memory key.
    pub(crate) setters_left: u8,
    /// Most pieces of that key.
    pub(crate) most_pieces: usize,
    /// It may have signatures.
    pub(crate) key_has_signatures: bool,
}

/// A request, and which of the series' elements and bytes are its own.
pub(crate) struct Part {
    pub(crate) request: SendRequest<'static>,
    pub(crate) sges: Range<usize>,
    pub(crate) inline_data: Range<usize>,
    /// The window that this binds.
    pub(crate) window: Option<Arc<Mw>>,
}

impl Series {
    /// Requests that there is room for from the beginning.
    const ROOM: u32 = 64;

    pub(crate) fn new(capacity: &QpCapacity) -> Series {
        let room = capacity.max_send_wr.min(Series::ROOM) as usize;
        Series {
            requests: Vec::with_capacity(room),
            sges: Vec::with_capacity(room * 2),
            inline_data: Vec::new(),
            refused: None,
            setters_left: 0,
            most_pieces: 0,
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
    pub(crate) fn start(&self, request: SendRequest<'static>) -> Part {
        let (sges, inline) = (self.sges.len(), self.inline_data.len());
        Part { request, sges: sges..sges, inline_data: inline..inline, window: None }
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
