//! A stream: both halves, the directions that are still open, and the words of the protocol itself.

use std::ffi::c_int;

use super::halves::{EntryTable, ReceiveHalf, SendHalf, Transfer};
use super::headers::ConnectionData;
use super::ring::{Mapping, RemoteBuffer, RingPiece, RsMessage};
use super::{CONTROL_REQUESTS, ProtocolViolation};

/// Sizes of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StreamSizes {
    /// Number of requests of the send queue, those for words of the protocol included.
    pub(crate) send_queue: u16,
    /// Number of receives that are always posted.
    pub(crate) receive_queue: u16,
    /// Length of each ring in bytes.
    pub(crate) send_buffer: u32,
    pub(crate) receive_buffer: u32,
}

/// Directions that are shut down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ShutdownHow {
    Read,
    Write,
    Both,
}

/// End of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamEnd {
    /// The connection ended by agreement, or because the peer went.
    Graceful,
    /// The connection failed with this errno.
    Failed(c_int),
}

/// A word of the protocol itself, to be posted. Its completion is handled by
/// [`StreamProtocol::handle_control_done`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ControlMessage {
    pub(crate) word: RsMessage,
    /// Entry to be written into the peer's table: its address, and its bytes.
    pub(crate) entry: Option<(RemoteBuffer, [u8; RemoteBuffer::LEN])>,
}

/// The protocol state of a stream.
#[derive(Debug)]
pub(crate) struct StreamProtocol {
    pub(crate) sending: SendHalf,
    receiving: ReceiveHalf,
    /// Tables of the peer, the entry of its first that is written next, and the byte order in which it reads
    /// them.
    table: RemoteBuffer,
    maps: u16,
    next_entry: u32,
    big_endian: bool,
    /// Number of words of the protocol that are under way.
    controls: u32,
    /// Word about directions that were shut down, whether the peer was notified that no more data will come,
    /// and whether it got the last word.
    shutdown_message: Option<RsMessage>,
    half_closed: bool,
    disconnecting: bool,
    reads: bool,
    writes: bool,
    end: Option<StreamEnd>,
}

impl StreamProtocol {
    /// Creates a stream that is about to be connected: it receives into `ring`, of `sizes.receive_buffer`
    /// bytes.
    pub(crate) fn new(sizes: &StreamSizes, ring: RemoteBuffer) -> StreamProtocol {
        StreamProtocol {
            sending: SendHalf::new(sizes.send_queue, sizes.send_buffer),
            receiving: ReceiveHalf::new(sizes.receive_queue, ring),
            table: RemoteBuffer::default(),
            maps: 0,
            next_entry: 1,
            big_endian: false,
            controls: 0,
            shutdown_message: None,
            half_closed: false,
            disconnecting: false,
            reads: true,
            writes: true,
            end: None,
        }
    }

    /// Applies the peer's private data.
    pub(crate) fn begin(&mut self, peer: &ConnectionData) {
        self.sending.begin(peer.credits, peer.first);
        self.table = peer.table;
        self.maps = peer.maps;
        self.big_endian = peer.big_endian;
    }

    /// Reports whether data, or the end of it, can be read.
    pub(crate) const fn can_read(&self) -> bool {
        self.receiving.available() > 0 || !self.reads
    }

    /// Reports whether data can be sent now.
    pub(crate) fn can_write(&self) -> bool {
        self.writes && self.sending.is_possible()
    }

    pub(crate) const fn reads(&self) -> bool {
        self.reads
    }

    pub(crate) const fn writes(&self) -> bool {
        self.writes
    }

    /// Returns how it ended, if it did.
    pub(crate) const fn end(&self) -> Option<StreamEnd> {
        self.end
    }

    /// Returns the number of mappings that the peer has room for.
    pub(crate) const fn maps(&self) -> u16 {
        self.maps
    }

    /// Returns the number of bytes that wait.
    pub(crate) const fn available(&self) -> u32 {
        self.receiving.available()
    }

    /// Returns the first bytes that wait, at most `wanted`.
    pub(crate) fn peek(&self, wanted: usize) -> RingPiece {
        self.receiving.peek(wanted)
    }

    /// Consumes bytes that were read.
    pub(crate) fn consume(&mut self, length: u32) {
        self.receiving.consume(length);
    }

    /// Handles a word of the peer, of a message that wrote `bytes` bytes.
    ///
    /// # Errors
    /// Fails if the peer broke the protocol; the connection is to be ended.
    pub(crate) fn handle_word(
        &mut self,
        word: RsMessage,
        bytes: u32,
        table: &mut impl EntryTable,
    ) -> Result<(), ProtocolViolation> {
        match word {
            RsMessage::Data(length) => self.receiving.handle_data(length)?,
            RsMessage::Grant(limit) => self.sending.handle_grant(limit, bytes, table),
            RsMessage::Map(_) => self.receiving.handle_other(),
            RsMessage::Disconnect => self.handle_end(StreamEnd::Graceful),
            RsMessage::Shutdown if !self.writes => self.handle_end(StreamEnd::Graceful),
            RsMessage::Shutdown => self.reads = false,
            RsMessage::KeepAlive | RsMessage::Unknown(_) => {}
        }
        Ok(())
    }

    /// Handles the arrival of a word of the protocol itself.
    pub(crate) fn handle_control_done(&mut self, was_disconnect: bool) {
        self.controls = self.controls.saturating_sub(1);
        if was_disconnect {
            self.handle_end(StreamEnd::Graceful);
        }
    }

    /// Ends both directions. Received data can still be read; the first reason counts.
    pub(crate) fn handle_end(&mut self, end: StreamEnd) {
        self.end = self.end.or(Some(end));
        self.reads = false;
        self.writes = false;
        self.shutdown_message = None;
    }

    /// Shuts down directions. The word about it is sent after all data that was posted before.
    pub(crate) fn shut(&mut self, how: ShutdownHow) {
        self.reads &= how == ShutdownHow::Write;
        self.writes &= how == ShutdownHow::Read;
    }

    /// Makes the word that notifies the peer of directions shut down by [`StreamProtocol::shut`], once all
    /// data is posted.
    pub(crate) fn queue_shutdown_word(&mut self) {
        if self.end.is_some() || self.disconnecting || self.writes {
            return;
        }
        if self.reads {
            if !std::mem::replace(&mut self.half_closed, true) {
                self.shutdown_message = Some(RsMessage::Shutdown);
            }
        } else {
            self.shutdown_message = Some(RsMessage::Disconnect);
            self.disconnecting = true;
        }
    }

    /// Returns the next word of the protocol itself, if one is due and can be posted.
    pub(crate) fn poll_control(&mut self) -> Option<ControlMessage> {
        if self.controls >= CONTROL_REQUESTS || self.end.is_some() {
            return None;
        }
        if let Some(word) = self.shutdown_message.take() {
            self.controls += 1;
            return Some(ControlMessage { word, entry: None });
        }
        // After the last message of the protocol, no more are received.
        if self.disconnecting || !self.receiving.grant_is_due() {
            return None;
        }
        self.controls += 1;
        let (limit, buffer) = self.receiving.grant();
        let entry = buffer.map(|buffer| {
            let bytes = buffer.emit(self.big_endian);
            let address =
                self.table.address.wrapping_add(u64::from(self.next_entry) * RemoteBuffer::LEN as u64);
            self.next_entry = (self.next_entry + 1) % self.table.length.max(1);
            (RemoteBuffer { address, key: self.table.key, length: RemoteBuffer::LEN as u32 }, bytes)
        });
        Some(ControlMessage { word: RsMessage::Grant(limit), entry })
    }

    /// Begins a probe, a WRITE of no bytes that the peer's program does not see; it fails if the peer is
    /// gone. Returns whether it can be posted.
    pub(crate) fn probe(&mut self) -> bool {
        let possible = self.controls < CONTROL_REQUESTS && self.end.is_none();
        self.controls += u32::from(possible);
        possible
    }

    /// Returns the transfer of an entry for the peer's table of mappings, and its bytes; `None` if it cannot
    /// be sent now.
    pub(crate) fn map(
        &mut self,
        index: u16,
        mapping: &Mapping,
        inline: u32,
    ) -> Option<(Transfer, [u8; Mapping::LEN])> {
        let before = u64::from(self.table.length) * RemoteBuffer::LEN as u64;
        let within = u64::from(index) * Mapping::LEN as u64;
        let address = self.table.address.wrapping_add(before).wrapping_add(within);
        let to = RemoteBuffer { address, key: self.table.key, length: Mapping::LEN as u32 };
        let transfer = self.sending.mapping(index, Mapping::LEN as u32, to, inline)?;
        Some((transfer, mapping.emit(self.big_endian)))
    }

    /// Reports whether the peer was notified of directions that were shut down.
    pub(crate) const fn shutdown_is_sent(&self) -> bool {
        self.shutdown_message.is_none()
    }

    /// Reports whether all that was posted has arrived.
    pub(crate) const fn is_idle(&self) -> bool {
        self.sending.is_idle() && self.controls == 0 && self.shutdown_message.is_none()
    }

    /// Advances the counters as if this many messages had been exchanged.
    #[cfg(test)]
    pub(crate) fn age(&mut self, messages: u16) {
        self.sending.age(messages);
        self.receiving.age(messages);
    }
}
