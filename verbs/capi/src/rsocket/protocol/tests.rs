//! Two streams that are connected by two queues.

use std::collections::VecDeque;

use super::halves::{EntryTable, FIRST_PIECE, Transfer};
use super::headers::ConnectionData;
use super::ring::{Mapping, RemoteBuffer, RingPiece, RsMessage};
use super::stream::{ControlMessage, ShutdownHow, StreamEnd, StreamProtocol, StreamSizes};
use super::{CONTROL_REQUESTS, ProtocolViolation};

const RING_ADDRESS: u64 = 0x10_0000;
const TABLE_ADDRESS: u64 = 0x20_0000;

struct TableEntries([RemoteBuffer; 2]);

impl EntryTable for TableEntries {
    fn take(&mut self, entry: usize) -> Option<RemoteBuffer> {
        Some(std::mem::take(&mut self.0[entry])).filter(|buffer| buffer.length != 0)
    }
}

/// A WRITE that is under way.
enum Posted {
    Data { transfer: Transfer, bytes: Vec<u8> },
    ControlMessage(ControlMessage),
}

struct TestSide {
    stream: StreamProtocol,
    ring: Vec<u8>,
    waiting: Vec<u8>,
    table: TableEntries,
    posted: VecDeque<Posted>,
    big_endian: bool,
}

impl TestSide {
    fn new(sizes: &StreamSizes, big_endian: bool) -> TestSide {
        let ring = RemoteBuffer { address: RING_ADDRESS, key: 5, length: sizes.receive_buffer };
        TestSide {
            stream: StreamProtocol::new(sizes, ring),
            ring: vec![0; sizes.receive_buffer as usize],
            waiting: vec![0; sizes.send_buffer as usize],
            table: TableEntries([RemoteBuffer::default(); 2]),
            posted: VecDeque::new(),
            big_endian,
        }
    }

    fn connection_data(&self, sizes: &StreamSizes) -> ConnectionData {
        ConnectionData {
            big_endian: self.big_endian,
            credits: sizes.receive_queue,
            maps: 0,
            table: RemoteBuffer { address: TABLE_ADDRESS, key: 6, length: 2 },
            first: RemoteBuffer { address: RING_ADDRESS, key: 5, length: sizes.receive_buffer / 2 },
        }
    }

    /// Writes as a program would.
    fn write(&mut self, mut bytes: &[u8], inline: u32) -> usize {
        let mut longest = FIRST_PIECE;
        let before = bytes.len();
        while let Some(transfer) = self.stream.sending.data(bytes.len(), longest, inline) {
            let (now, rest) = bytes.split_at(transfer.length as usize);
            if transfer.piece != RingPiece::default() {
                for (at, byte) in indices(&transfer.piece).zip(now) {
                    self.waiting[at] = *byte;
                }
            }
            self.posted.push_back(Posted::Data { transfer, bytes: now.to_vec() });
            bytes = rest;
            longest *= 2;
        }
        before - bytes.len()
    }

    fn post_controls(&mut self) {
        while let Some(control) = self.stream.poll_control() {
            self.posted.push_back(Posted::ControlMessage(control));
        }
    }

    fn read(&mut self, wanted: usize) -> Vec<u8> {
        let piece = self.stream.peek(wanted);
        let bytes: Vec<u8> = indices(&piece).map(|at| self.ring[at]).collect();
        self.stream.consume(piece.length());
        bytes
    }
}

fn indices(piece: &RingPiece) -> impl Iterator<Item = usize> {
    let (offset, first, second) = (piece.offset as usize, piece.first as usize, piece.second as usize);
    (offset..offset + first).chain(0..second)
}

/// Delivers the oldest WRITE of one side to the other, and completes it.
fn deliver(from: &mut TestSide, to: &mut TestSide) -> Result<bool, ProtocolViolation> {
    let Some(posted) = from.posted.pop_front() else { return Ok(false) };
    match posted {
        Posted::Data { transfer, bytes } => {
            assert_eq!(transfer.key, 5);
            let at = (transfer.address - RING_ADDRESS) as usize;
            if transfer.piece != RingPiece::default() {
                let sent: Vec<u8> = indices(&transfer.piece).map(|at| from.waiting[at]).collect();
                assert_eq!(sent, bytes, "the ring was overwritten before it was sent");
            }
            to.ring[at..at + bytes.len()].copy_from_slice(&bytes);
            let word = transfer.word.expect("data is told of");
            to.stream.handle_word(RsMessage::from_bits(word.bits()), transfer.length, &mut to.table)?;
            from.stream.sending.handle_done(transfer.piece.length());
        }
        Posted::ControlMessage(ControlMessage { word, entry }) => {
            if let Some((buffer, bytes)) = entry {
                assert_eq!((buffer.key, buffer.length), (6, 16));
                let index = ((buffer.address - TABLE_ADDRESS) / 16) as usize;
                assert_eq!(to.table.0[index].length, 0, "an entry was overwritten before it was taken");
                to.table.0[index] = RemoteBuffer::parse(&bytes, to.big_endian);
            }
            let bytes = if entry.is_some() { 16 } else { 0 };
            to.stream.handle_word(RsMessage::from_bits(word.bits()), bytes, &mut to.table)?;
            from.stream.handle_control_done(word == RsMessage::Disconnect);
        }
    }
    Ok(true)
}

fn connected(sizes: [StreamSizes; 2], orders: [bool; 2]) -> [TestSide; 2] {
    let mut one = TestSide::new(&sizes[0], orders[0]);
    let mut other = TestSide::new(&sizes[1], orders[1]);
    one.stream
        .begin(&ConnectionData::parse(&other.connection_data(&sizes[1]).emit()).expect("connection data"));
    other
        .stream
        .begin(&ConnectionData::parse(&one.connection_data(&sizes[0]).emit()).expect("connection data"));
    [one, other]
}

const SMALL: StreamSizes =
    StreamSizes { send_queue: 16, receive_queue: 16, send_buffer: 4096, receive_buffer: 8192 };

struct TestRandom(u64);

impl TestRandom {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// Both sides write and read at random; the data read is the data written, and neither side ever gets stuck.
fn chat(seed: u64) {
    let mut chance = TestRandom(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut sizes = || StreamSizes {
        send_queue: 16 + chance.below(48) as u16,
        receive_queue: 16 + chance.below(100) as u16,
        send_buffer: 2048 + chance.below(9000) as u32,
        receive_buffer: 2 * (1 + chance.below(20_000) as u32),
    };
    let sizes = [sizes(), sizes()];
    let mut sides = connected(sizes, [chance.below(2) == 0, chance.below(2) == 0]);
    let age = chance.below(65536) as u16;
    sides.iter_mut().for_each(|side| side.stream.age(age));
    let inline = [0, 64][chance.below(2) as usize];
    let (mut written, mut read) = ([0_usize; 2], [0_usize; 2]);
    let content = |side: usize, at: usize| ((at as u64).wrapping_mul(0x9e37_79b9) >> 7) as u8 ^ side as u8;
    let total = 200_000;
    let mut idle = 0;
    while read != [total, total] {
        let who = chance.below(2) as usize;
        let before = (written, read, sides[0].posted.len() + sides[1].posted.len());
        match chance.below(4) {
            0 => {
                let limit = if chance.below(4) == 0 { 40_000 } else { 50 };
                let most = 1 + chance.below(limit) as usize;
                let bytes: Vec<u8> =
                    (written[who]..total.min(written[who] + most)).map(|at| content(who, at)).collect();
                written[who] += sides[who].write(&bytes, inline);
            }
            1 => {
                let bytes = sides[who].read(1 + chance.below(9000) as usize);
                for byte in bytes {
                    assert_eq!(byte, content(1 - who, read[who]), "seed {seed}: byte {}", read[who]);
                    read[who] += 1;
                }
            }
            2 => sides[who].post_controls(),
            _ => {
                let [one, other] = &mut sides;
                let (from, to) = if who == 0 { (one, other) } else { (other, one) };
                deliver(from, to).unwrap_or_else(|fault| panic!("seed {seed}: {fault:?}"));
            }
        }
        let after = (written, read, sides[0].posted.len() + sides[1].posted.len());
        idle = if after == before { idle + 1 } else { 0 };
        assert!(
            idle < 2000,
            "seed {seed}: stuck at {written:?} written, {read:?} read: {:?}",
            sides[who].stream
        );
    }
}

#[test]
fn whatever_the_order_every_byte_arrives() {
    (1..=60).for_each(chat);
}

#[test]
fn numbers_wrap() {
    let [mut one, mut other] = connected([SMALL; 2], [false; 2]);
    let mut messages = 0_u32;
    while messages < 70_000 {
        assert_eq!(one.write(&[messages as u8], 64), 1, "after {messages}");
        assert_eq!(deliver(&mut one, &mut other), Ok(true));
        assert_eq!(other.read(10), [messages as u8]);
        other.post_controls();
        while deliver(&mut other, &mut one) == Ok(true) {}
        messages += 1;
    }
    assert_eq!(one.stream.sending.numbers().0, 70_000_u32 as u16);
}

#[test]
fn without_credits_nothing_is_sent_and_credits_come_when_half_are_used() {
    let [mut one, mut other] = connected([SMALL; 2], [false; 2]);
    for message in 0..12 {
        assert_eq!(one.write(&[message], 64), 1);
    }
    assert_eq!(one.write(&[0], 64), 0, "twelve requests of sixteen are for data");
    assert!(!one.stream.is_idle());
    while deliver(&mut one, &mut other) == Ok(true) {}
    assert!(one.stream.is_idle());
    for message in 0..4 {
        assert_eq!(one.write(&[message], 64), 1);
    }
    assert_eq!(one.write(&[0], 64), 0, "sixteen credits");
    while deliver(&mut one, &mut other) == Ok(true) {}
    // The grant has only the second half of the ring, and no more credits.
    other.post_controls();
    assert_eq!(other.posted.len(), 1);
    assert_eq!(deliver(&mut other, &mut one), Ok(true));
    assert_eq!(one.stream.sending.numbers(), (16, 16));
    assert_eq!(other.read(7).len(), 7);
    other.post_controls();
    assert!(other.posted.is_empty());
    assert_eq!(other.read(1).len(), 1);
    other.post_controls();
    assert!(matches!(
        other.posted.front(),
        Some(Posted::ControlMessage(ControlMessage { word: RsMessage::Grant(24), entry: None }))
    ));
    assert_eq!(deliver(&mut other, &mut one), Ok(true));
    assert!(one.stream.can_write());
}

#[test]
fn a_half_is_granted_when_it_was_read() {
    let sizes = StreamSizes { send_buffer: 1 << 16, ..SMALL };
    let [mut one, mut other] = connected([sizes; 2], [false; 2]);
    // Only the first half is usable; the second is not known yet.
    assert_eq!(one.write(&[1; 9000], 0), 4096);
    other.post_controls();
    let Some(Posted::ControlMessage(ControlMessage {
        word: RsMessage::Grant(16),
        entry: Some((buffer, bytes)),
    })) = other.posted.front()
    else {
        panic!("the second half is granted at once")
    };
    assert_eq!(buffer.address, TABLE_ADDRESS + 16, "the second entry comes first");
    let second = RemoteBuffer { address: RING_ADDRESS + 4096, key: 5, length: 4096 };
    assert_eq!(RemoteBuffer::parse(bytes, false), second);
    assert_eq!(deliver(&mut other, &mut one), Ok(true));
    assert_eq!(one.write(&[2; 9000], 0), 4096);
    while deliver(&mut one, &mut other) == Ok(true) {}
    assert_eq!(other.read(4095).len(), 4095);
    other.post_controls();
    assert!(other.posted.is_empty());
    assert_eq!(other.read(1), [1]);
    other.post_controls();
    let Some(Posted::ControlMessage(ControlMessage { entry: Some((buffer, bytes)), .. })) =
        other.posted.front()
    else {
        panic!("the first half is free again")
    };
    assert_eq!(buffer.address, TABLE_ADDRESS);
    assert_eq!(RemoteBuffer::parse(bytes, false).address, RING_ADDRESS);
}

#[test]
fn a_peer_that_takes_more_than_it_was_granted_is_found_out() {
    let [mut one, _] = connected([SMALL; 2], [false; 2]);
    let mut table = TableEntries([RemoteBuffer::default(); 2]);
    assert_eq!(
        one.stream.handle_word(RsMessage::Data(4097), 0, &mut table),
        Err(ProtocolViolation::TooManyBytes)
    );
    assert_eq!(one.stream.handle_word(RsMessage::Data(4096), 0, &mut table), Ok(()));
    assert_eq!(
        one.stream.handle_word(RsMessage::Data(1), 0, &mut table),
        Err(ProtocolViolation::TooManyBytes)
    );
    let [mut one, _] = connected([SMALL; 2], [false; 2]);
    for _ in 0..16 {
        assert_eq!(one.stream.handle_word(RsMessage::Data(1), 0, &mut table), Ok(()));
    }
    assert_eq!(
        one.stream.handle_word(RsMessage::Data(1), 0, &mut table),
        Err(ProtocolViolation::TooManyMessages)
    );
    // Messages without data, and of unknown kinds, are counted or ignored.
    let [mut one, _] = connected([SMALL; 2], [false; 2]);
    for bits in [0, 0x2000_0001, 0x4000_0001, 0x6000_0001, 0xa000_0001, 0xc000_ffff, 0xe000_ffff] {
        assert_eq!(one.stream.handle_word(RsMessage::from_bits(bits), 0, &mut table), Ok(()));
    }
    assert_eq!(one.stream.available(), 0);
}

#[test]
fn an_entry_is_taken_only_when_the_message_that_wrote_it_is_complete() {
    let [mut one, _] = connected([SMALL; 2], [false; 2]);
    // The first buffer is used up, so the next entry is needed.
    while !one.write(&[0; 2048], 0).eq(&0) {
        let sent: Vec<Posted> = one.posted.drain(..).collect();
        for posted in sent {
            let Posted::Data { transfer, .. } = posted else { continue };
            one.stream.sending.handle_done(transfer.piece.length());
        }
    }
    let whole = RemoteBuffer { address: RING_ADDRESS, key: 5, length: 100 };
    // Half of the entry is written; a message with only credits arrives before the one that writes it.
    let mut table = TableEntries([RemoteBuffer::default(), RemoteBuffer { key: 0, ..whole }]);
    assert_eq!(one.stream.handle_word(RsMessage::Grant(40), 0, &mut table), Ok(()));
    assert_eq!(one.stream.sending.data(1, 1, 64), None);
    assert_eq!(table.0[1].length, 100, "it was left as it is");
    table.0[1] = whole;
    assert_eq!(one.stream.handle_word(RsMessage::Grant(41), 16, &mut table), Ok(()));
    assert_eq!(one.stream.sending.data(1, 1, 64).map(|transfer| transfer.key), Some(5));
}

#[test]
fn any_words_at_all_are_survived() {
    for seed in 1..200 {
        let mut chance = TestRandom(seed);
        let [mut one, _] = connected([SMALL; 2], [false; 2]);
        for _ in 0..500 {
            let mut table = TableEntries(
                [RemoteBuffer {
                    address: chance.below(u64::MAX),
                    key: 1,
                    length: chance.below(1 << 32) as u32,
                }; 2],
            );
            let kind = chance.below(8) as u32;
            let bits = kind << 29 | (chance.below(1 << 29) as u32 >> chance.below(29));
            let written = chance.below(40) as u32;
            if one.stream.handle_word(RsMessage::from_bits(bits), written, &mut table).is_err() {
                break;
            }
            one.write(&[0; 100], 64);
            one.post_controls();
            one.read(chance.below(5000) as usize);
        }
    }
}

#[test]
fn at_most_four_control_messages_are_in_flight() {
    let [mut one, _] = connected([SMALL; 2], [false; 2]);
    assert!((0..CONTROL_REQUESTS).all(|_| one.stream.probe()));
    assert!(!one.stream.probe());
    one.post_controls();
    assert!(one.posted.is_empty());
    one.stream.handle_control_done(false);
    one.post_controls();
    assert_eq!(one.posted.len(), 1);
}

#[test]
fn one_direction_is_given_up_and_then_the_other() {
    let [mut one, mut other] = connected([SMALL; 2], [false; 2]);
    one.write(b"last", 64);
    one.stream.shut(ShutdownHow::Write);
    assert!(one.stream.sending.is_possible() && !one.stream.can_write());
    one.stream.queue_shutdown_word();
    one.stream.queue_shutdown_word();
    one.post_controls();
    while deliver(&mut one, &mut other) == Ok(true) {}
    assert!(!other.stream.reads() && other.stream.can_read());
    assert_eq!(other.read(10), b"last");
    assert!(other.stream.can_read() && other.stream.can_write(), "the end is read, and writing goes on");
    other.write(b"answer", 64);
    other.post_controls();
    other.stream.shut(ShutdownHow::Write);
    other.stream.queue_shutdown_word();
    other.post_controls();
    while deliver(&mut other, &mut one) == Ok(true) {}
    assert_eq!(one.read(10), b"answer");
    assert_eq!(one.stream.end(), Some(StreamEnd::Graceful));
    assert_eq!(other.stream.end(), Some(StreamEnd::Graceful), "its last word has arrived");
}

#[test]
fn the_last_message_is_sent_once() {
    let [mut one, mut other] = connected([SMALL; 2], [false; 2]);
    one.stream.shut(ShutdownHow::Read);
    one.stream.queue_shutdown_word();
    one.post_controls();
    while deliver(&mut one, &mut other) == Ok(true) {}
    assert!(one.stream.can_write() && other.stream.can_write(), "nothing is said of that");
    one.stream.shut(ShutdownHow::Both);
    one.stream.queue_shutdown_word();
    one.stream.queue_shutdown_word();
    one.post_controls();
    assert!(matches!(
        one.posted.make_contiguous(),
        [Posted::ControlMessage(ControlMessage { word: RsMessage::Disconnect, entry: None })]
    ));
    while deliver(&mut one, &mut other) == Ok(true) {}
    assert_eq!(
        (one.stream.end(), other.stream.end()),
        (Some(StreamEnd::Graceful), Some(StreamEnd::Graceful))
    );
    one.stream.handle_end(StreamEnd::Failed(libc::EIO));
    assert_eq!(one.stream.end(), Some(StreamEnd::Graceful), "the first reason counts");
}

#[test]
fn mappings_cost_credits_on_both_sides() {
    let [mut one, mut other] = connected([SMALL; 2], [false, true]);
    let mapping = Mapping { offset: 3, buffer: RemoteBuffer { address: 9, key: 8, length: 7 } };
    let (transfer, bytes) = one.stream.map(2, &mapping, 64).expect("there are credits");
    assert_eq!(transfer.address, TABLE_ADDRESS + 32 + 2 * 24, "they follow the table");
    assert_eq!((transfer.word, transfer.key, transfer.length), (Some(RsMessage::Map(2)), 6, 24));
    assert_eq!(bytes, mapping.emit(true), "as the peer reads it");
    assert_eq!(one.stream.sending.numbers(), (1, 16));
    for _ in 0..8 {
        assert_eq!(
            other.stream.handle_word(RsMessage::Map(2), 0, &mut TableEntries([RemoteBuffer::default(); 2])),
            Ok(())
        );
    }
    other.post_controls();
    assert!(matches!(
        other.posted.front(),
        Some(Posted::ControlMessage(ControlMessage { word: RsMessage::Grant(24), .. }))
    ));
    // The data is written around the end of the ring when it is not copied into the request.
    let (transfer, _) = one.stream.map(0, &mapping, 0).expect("there are credits");
    assert_eq!(transfer.piece.length(), 24);
}

#[test]
fn direct_writes_need_requests_and_room_but_no_credits() {
    let [mut one, _] = connected([SMALL; 2], [false; 2]);
    let to = RemoteBuffer { address: 1000, key: 4, length: 100 };
    for _ in 0..12 {
        let transfer = one.stream.sending.direct(500, to, FIRST_PIECE, 64).expect("there is room");
        assert_eq!((transfer.word, transfer.address, transfer.length), (None, 1000, 100));
        one.stream.sending.handle_done(transfer.piece.length());
    }
    assert_eq!(one.stream.sending.numbers().0, 0);
    for _ in 0..12 {
        assert!(one.stream.sending.direct(500, to, FIRST_PIECE, 64).is_some());
    }
    assert!(one.stream.sending.direct(500, to, FIRST_PIECE, 64).is_none());
    assert!(one.stream.sending.direct(500, RemoteBuffer { length: 0, ..to }, FIRST_PIECE, 64).is_none());
}
