//! A stream: both halves, the directions that are still open, and the words of the protocol itself.

use std::ffi::c_int;

use super::connection_data::ConnectionData;
use super::receiving::Receiving;
use super::remote_buffer::{Mapping, RemoteBuffer};
use super::ring::Piece;
use super::sending::{Sending, Table, Transfer};
use super::word::Word;
use super::{CONTROL_REQUESTS, Violation};

/// How large a stream is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// Requests of the send queue, those for words of the protocol included.
    pub(crate) send_queue: u16,
    /// Receives that are always posted.
    pub(crate) receive_queue: u16,
    /// Bytes of each ring.
    pub(crate) send_buffer: u32,
    pub(crate) receive_buffer: u32,
}

/// Directions that are given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    Read,
    Write,
    Both,
}

/// How a connection has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamEnd {
    /// By agreement, or because the peer went.
    Parted,
    /// With this errno.
    Failed(c_int),
}

/// A word of the protocol itself, to be posted. Its completion is [`Stream::handle_control_done`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Control {
    pub(crate) word: Word,
    /// An entry to be written into the peer's table: where, and its bytes.
    pub(crate) entry: Option<(RemoteBuffer, [u8; RemoteBuffer::LEN])>,
}

/// A stream.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) sending: Sending,
    receiving: Receiving,
    /// The peer's tables, the entry of its first that is written next, and how it reads them.
    table: RemoteBuffer,
    maps: u16,
    next_entry: u32,
    big_endian: bool,
    /// Words of the protocol that are on their way.
    controls: u32,
    /// What is to be said of directions that were given up, whether the peer was told that nothing more will
    /// come, and whether it was told the last word.
    farewell: Option<Word>,
    half_closed: bool,
    parting: bool,
    reads: bool,
    writes: bool,
    end: Option<StreamEnd>,
}

impl Stream {
    /// A stream that is about to be connected: it receives into `ring`, of `sizes.receive_buffer` bytes.
    pub(crate) fn new(sizes: &Sizes, ring: RemoteBuffer) -> Stream {
        Stream {
            sending: Sending::new(sizes.send_queue, sizes.send_buffer),
            receiving: Receiving::new(sizes.receive_queue, ring),
            table: RemoteBuffer::default(),
            maps: 0,
            next_entry: 1,
            big_endian: false,
            controls: 0,
            farewell: None,
            half_closed: false,
            parting: false,
            reads: true,
            writes: true,
            end: None,
        }
    }

    /// The peer's private data has come.
    pub(crate) fn begin(&mut self, peer: &ConnectionData) {
        self.sending.begin(peer.credits, peer.first);
        self.table = peer.table;
        self.maps = peer.maps;
        self.big_endian = peer.big_endian;
    }

    /// Whether data, or the end of it, can be read.
    pub(crate) const fn can_read(&self) -> bool {
        self.receiving.available() > 0 || !self.reads
    }

    /// Whether data can be sent now.
    pub(crate) fn can_write(&self) -> bool {
        self.writes && self.sending.is_possible()
    }

    pub(crate) const fn reads(&self) -> bool {
        self.reads
    }

    pub(crate) const fn writes(&self) -> bool {
        self.writes
    }

    /// How it ended, if it did.
    pub(crate) const fn end(&self) -> Option<StreamEnd> {
        self.end
    }

    /// How many mappings the peer has room for.
    pub(crate) const fn maps(&self) -> u16 {
        self.maps
    }

    /// Bytes that wait.
    pub(crate) const fn available(&self) -> u32 {
        self.receiving.available()
    }

    /// Where the first bytes that wait are, at most `wanted`.
    pub(crate) fn peek(&self, wanted: usize) -> Piece {
        self.receiving.peek(wanted)
    }

    /// They were read.
    pub(crate) fn consume(&mut self, length: u32) {
        self.receiving.consume(length);
    }

    /// A word of the peer's, of a message that wrote so many bytes.
    ///
    /// # Errors
    /// The peer broke the protocol; the connection is to be ended.
    pub(crate) fn handle_word(
        &mut self,
        word: Word,
        bytes: u32,
        table: &mut impl Table,
    ) -> Result<(), Violation> {
        match word {
            Word::Data(length) => self.receiving.handle_data(length)?,
            Word::Grant(limit) => self.sending.handle_grant(limit, bytes, table),
            Word::Map(_) => self.receiving.handle_other(),
            Word::Disconnect => self.handle_end(StreamEnd::Parted),
            Word::Shutdown if !self.writes => self.handle_end(StreamEnd::Parted),
            Word::Shutdown => self.reads = false,
            Word::KeepAlive | Word::Unknown(_) => {}
        }
        Ok(())
    }

    /// A word of the protocol itself has arrived.
    pub(crate) fn handle_control_done(&mut self, was_disconnect: bool) {
        self.controls = self.controls.saturating_sub(1);
        if was_disconnect {
            self.handle_end(StreamEnd::Parted);
        }
    }

    /// Nothing comes or goes any more. What has arrived can still be read; the first reason counts.
    pub(crate) fn handle_end(&mut self, end: StreamEnd) {
        self.end = self.end.or(Some(end));
        self.reads = false;
        self.writes = false;
        self.farewell = None;
    }

    /// Gives up directions. What is said of it comes after all data that was posted before.
    pub(crate) fn shut(&mut self, how: How) {
        self.reads &= how == How::Write;
        self.writes &= how == How::Read;
    }

    /// Makes the word that tells the peer of directions given up by [`Stream::shut`], once all data is
    /// posted.
    pub(crate) fn say_so(&mut self) {
        if self.end.is_some() || self.parting || self.writes {
            return;
        }
        if self.reads {
            if !std::mem::replace(&mut self.half_closed, true) {
                self.farewell = Some(Word::Shutdown);
            }
        } else {
            self.farewell = Some(Word::Disconnect);
            self.parting = true;
        }
    }

    /// The next word of the protocol itself, if one is due and can be posted.
    pub(crate) fn poll_control(&mut self) -> Option<Control> {
        if self.controls >= CONTROL_REQUESTS || self.end.is_some() {
            return None;
        }
        if let Some(word) = self.farewell.take() {
            self.controls += 1;
            return Some(Control { word, entry: None });
        }
        // After the last message of the protocol, nothing more is received.
        if self.parting || !self.receiving.grant_is_due() {
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
        Some(Control { word: Word::Grant(limit), entry })
    }

    /// A WRITE of no bytes that the peer's program does not see; it fails if the peer is gone.
    pub(crate) fn probe(&mut self) -> bool {
        let possible = self.controls < CONTROL_REQUESTS && self.end.is_none();
        self.controls += u32::from(possible);
        possible
    }

    /// An entry for the peer's table of mappings, and its bytes. `None`: not now.
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

    /// Whether the peer was told of directions that were given up.
    pub(crate) const fn is_said(&self) -> bool {
        self.farewell.is_none()
    }

    /// Whether all that was posted has arrived.
    pub(crate) const fn is_idle(&self) -> bool {
        self.sending.is_idle() && self.controls == 0 && self.farewell.is_none()
    }

    /// As if so many messages had gone to and fro.
    #[cfg(test)]
    pub(crate) fn age(&mut self, messages: u16) {
        self.sending.age(messages);
        self.receiving.age(messages);
    }
}
