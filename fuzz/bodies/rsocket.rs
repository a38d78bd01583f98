//! Any bytes as what the peer of a stream rsocket says, and what the program does in between: nothing panics,
//! what is sent stays within the buffers that the peer gave, and what can be read within the own ring.

use super::protocol::halves::{EntryTable, FIRST_PIECE, Transfer};
use super::protocol::headers::ConnectionData;
use super::protocol::ring::{RemoteBuffer, RingPiece, RsMessage};
use super::protocol::stream::{ShutdownHow, StreamEnd, StreamProtocol, StreamSizes};

const SIZES: StreamSizes =
    StreamSizes { send_queue: 16, receive_queue: 16, send_buffer: 4096, receive_buffer: 8192 };
const RING: RemoteBuffer = RemoteBuffer { address: 0x10_0000, key: 5, length: SIZES.receive_buffer };

/// The table that the peer writes into, and every buffer that it ever gave.
struct OfferedBuffers {
    table: [RemoteBuffer; 2],
    all: Vec<RemoteBuffer>,
}

impl OfferedBuffers {
    fn give(&mut self, entry: usize, buffer: RemoteBuffer) {
        self.table[entry % 2] = buffer;
        self.all.push(buffer);
    }

    fn covers(&self, transfer: &Transfer) -> bool {
        self.all.iter().any(|buffer| {
            let start = transfer.address.wrapping_sub(buffer.address);
            let end = start.saturating_add(transfer.length.into());
            buffer.key == transfer.key && end <= u64::from(buffer.length)
        })
    }
}

impl EntryTable for OfferedBuffers {
    fn take(&mut self, entry: usize) -> Option<RemoteBuffer> {
        Some(std::mem::take(&mut self.table[entry])).filter(|buffer| buffer.length != 0)
    }
}

/// How much of the input meant something.
pub(crate) fn survive(bytes: &[u8]) -> usize {
    let (private_data, script) = bytes.split_at(bytes.len().min(ConnectionData::LEN));
    let Ok(peer) = ConnectionData::parse(private_data) else { return 0 };
    assert_eq!(ConnectionData::parse(&peer.emit()).map(|again| again.first), Ok(peer.first));
    let mut stream = StreamProtocol::new(&SIZES, RING);
    stream.begin(&peer);
    let mut given = OfferedBuffers { table: [RemoteBuffer::default(); 2], all: vec![peer.first] };
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
                if stream.handle_word(RsMessage::from_bits(bits), u32::from(argument), &mut given).is_err() {
                    stream.handle_end(StreamEnd::Failed(libc_econnreset()));
                }
            }
            2 => {
                given.give(argument.into(), RemoteBuffer { address: bits.into(), key: 7, length: bits >> 16 })
            }
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
                    controls.push(control.word == RsMessage::Disconnect);
                } else if !controls.is_empty() {
                    stream.handle_control_done(controls.remove(0));
                }
            }
            _ => match argument % 4 {
                0 => stream.shut(ShutdownHow::Read),
                1 => stream.shut(ShutdownHow::Write),
                2 => stream.queue_shutdown_word(),
                _ => stream.handle_end(StreamEnd::Graceful),
            },
        }
        assert!(stream.available() <= SIZES.receive_buffer);
    }
    exchanged
}

fn within(piece: &RingPiece, ring_bytes: u32) {
    assert!(piece.offset + piece.first <= ring_bytes && piece.second <= ring_bytes, "{piece:?}");
}

const fn libc_econnreset() -> i32 {
    104
}
