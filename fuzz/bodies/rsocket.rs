//! Any bytes as what the peer of a stream rsocket says, and what the program does in between: nothing panics, what
//! is sent stays within the places that the peer gave, and what can be read within the own ring.

use super::protocol::greeting::Greeting;
use super::protocol::place::Place;
use super::protocol::ring::Piece;
use super::protocol::sending::{FIRST_PIECE, Table, Transfer};
use super::protocol::stream::{End, How, Sizes, Stream};
use super::protocol::word::Word;

const SIZES: Sizes = Sizes { send_queue: 16, receive_queue: 16, send_buffer: 4096, receive_buffer: 8192 };
const RING: Place = Place { address: 0x10_0000, key: 5, length: SIZES.receive_buffer };

/// The table that the peer writes into, and every place that it ever gave.
struct Given {
    table: [Place; 2],
    all: Vec<Place>,
}

impl Given {
    fn give(&mut self, entry: usize, place: Place) {
        self.table[entry % 2] = place;
        self.all.push(place);
    }

    fn covers(&self, transfer: &Transfer) -> bool {
        self.all.iter().any(|place| {
            let start = transfer.address.wrapping_sub(place.address);
            let end = start.saturating_add(transfer.length.into());
            place.key == transfer.key && end <= u64::from(place.length)
        })
    }
}

impl Table for Given {
    fn take(&mut self, entry: usize) -> Option<Place> {
        Some(std::mem::take(&mut self.table[entry])).filter(|place| place.length != 0)
    }
}

/// How much of the input meant something.
pub(crate) fn survive(bytes: &[u8]) -> usize {
    let (greeting, script) = bytes.split_at(bytes.len().min(Greeting::LEN));
    let Ok(greeting) = Greeting::parse(greeting) else { return 0 };
    assert_eq!(Greeting::parse(&greeting.emit()).map(|again| again.first), Ok(greeting.first));
    let mut stream = Stream::new(&SIZES, RING);
    stream.begin(&greeting);
    let mut given = Given { table: [Place::default(); 2], all: vec![greeting.first] };
    let mut posted: Vec<Transfer> = Vec::new();
    let mut controls: Vec<bool> = Vec::new();
    let mut exchanged = 0;
    for step in script.chunks(6) {
        let &[what, argument, ref word @ ..] = step else { break };
        let mut bits = [0; 4];
        bits.iter_mut().zip(word).for_each(|(to, from)| *to = *from);
        let bits = u32::from_be_bytes(bits);
        match what % 8 {
            0 | 1 => {
                if stream.handle_word(Word::from_bits(bits), &mut given).is_err() {
                    stream.handle_end(End::Failed(libc_econnreset()));
                }
            }
            2 => given.give(argument.into(), Place { address: bits.into(), key: 7, length: bits >> 16 }),
            3 => {
                if stream.can_write()
                    && let Some(transfer) =
                        stream.sending.data(bits as usize % 9000, FIRST_PIECE, argument.into())
                {
                    assert!(given.covers(&transfer), "{transfer:?} beyond {:?}", given.all);
                    within(&transfer.piece, SIZES.send_buffer);
                    posted.push(transfer);
                    exchanged += 1;
                }
            }
            4 => {
                if !posted.is_empty() {
                    stream.sending.handle_done(posted.remove(0).piece.length());
                }
            }
            5 => {
                let piece = stream.peek(bits as usize % 9000);
                within(&piece, SIZES.receive_buffer);
                assert!(piece.length() <= stream.available());
                stream.consume(piece.length());
                exchanged += piece.length() as usize;
            }
            6 => {
                if let Some(control) = stream.poll_control() {
                    controls.push(control.word == Word::Disconnect);
                } else if !controls.is_empty() {
                    stream.handle_control_done(controls.remove(0));
                }
            }
            _ => match argument % 4 {
                0 => stream.shut(How::Read),
                1 => stream.shut(How::Write),
                2 => stream.say_so(),
                _ => stream.handle_end(End::Parted),
            },
        }
        assert!(stream.available() <= SIZES.receive_buffer);
    }
    exchanged
}

fn within(piece: &Piece, ring_bytes: u32) {
    assert!(piece.offset + piece.first <= ring_bytes && piece.second <= ring_bytes, "{piece:?}");
}

const fn libc_econnreset() -> i32 {
    104
}
