//! A port that keeps what is sent.

use std::sync::Arc;

use pumice_transport::host::Transmit;
use pumice_transport::path::Path;
use pumice_transport::wire::{ICRC_BYTES, Packet, Qpn, icrc};

use super::PEER;
use super::literal::Literal;

/// Fills the ICRC of a finished packet.
pub(crate) type Seal = fn(path: &Path, packet: &mut [u8]);

/// One packet sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) path: Path,
    pub(crate) destination: Qpn,
    /// BTH … ICRC.
    pub(crate) bytes: Vec<u8>,
}

/// A [`Transmit`] that records packets, and holds its caller to the order begin, then seal or
/// abandon.
#[derive(Default)]
pub(crate) struct Sink {
    /// Sealed packets not yet looked at.
    pub(crate) sent: Vec<Sent>,
    /// Packets given up after `begin`.
    pub(crate) abandoned: usize,
    /// How many more packets there is room for; `None` is no limit.
    pub(crate) room: Option<usize>,
    /// Computes ICRCs; without it they stay as `begin` left them.
    pub(crate) seal: Option<Seal>,
    open: Option<Sent>,
}

impl Sink {
    /// A port that seals packets as sent over UDP sockets: IP identification 0.
    pub(crate) fn sealing() -> Sink {
        Sink { seal: Some(|path, packet| icrc::seal(&path.flow, 0, packet)), ..Sink::default() }
    }

    /// Takes all packets sent since the last call. Their destination is left out when it is the
    /// peer.
    pub(crate) fn take(&mut self) -> Vec<Literal> {
        assert!(self.open.is_none(), "a packet was begun and neither sealed nor abandoned");
        self.sent
            .drain(..)
            .map(|sent| {
                if self.seal.is_some() {
                    let verdict = icrc::verify(&sent.path.flow, 0, &sent.bytes);
                    assert_eq!(verdict, icrc::IcrcVerdict::Exact, "ICRC of {:02x?}", sent.bytes);
                    let packet = Packet::parse(&sent.bytes).expect("a packet that is sent can be parsed");
                    assert_written_alike(&packet);
                }
                let literal = Literal::parse(&sent.bytes, PEER);
                let destination = literal.destination.unwrap_or(PEER.value());
                assert_eq!(sent.destination.value(), destination, "steered to another QP than the BTH's");
                literal
            })
            .collect()
    }

    /// Takes the one packet sent since the last call.
    pub(crate) fn take_one(&mut self) -> Literal {
        match <[Literal; 1]>::try_from(self.take()) {
            Ok([literal]) => literal,
            Err(packets) => panic!("expected one packet, got {packets:#?}"),
        }
    }
}

/// Queue pairs write headers one by one; headers that are a value are the same bytes.
fn assert_written_alike(packet: &Packet<'_>) {
    let mut bytes = vec![0x5a; packet.bytes().len()];
    let written = packet.headers().emit_packet(packet.payload(), &mut bytes);
    assert_eq!(bytes[..written], packet.bytes()[..packet.bytes().len() - ICRC_BYTES]);
}

impl Transmit for Sink {
    fn begin(&mut self, path: &Arc<Path>, destination: Qpn, length_bytes: usize) -> Option<&mut [u8]> {
        assert!(self.open.is_none(), "begin while a packet is open");
        match &mut self.room {
            Some(0) => return None,
            Some(room) => *room -= 1,
            None => {}
        }
        // Arbitrary contents: a queue pair that forgets a byte sends this.
        let bytes = vec![0xa5; length_bytes];
        let open = self.open.insert(Sent { path: Path::clone(path), destination, bytes });
        Some(&mut open.bytes)
    }

    fn seal(&mut self) {
        let mut packet = self.open.take().expect("seal without begin");
        if let Some(seal) = self.seal {
            seal(&packet.path, &mut packet.bytes);
        }
        self.sent.push(packet);
    }

    fn abandon(&mut self) {
        assert!(self.open.take().is_some(), "abandon without begin");
        self.abandoned += 1;
        if let Some(room) = &mut self.room {
            *room += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::literal::ack;
    use super::super::path_to_peer;
    use super::*;

    fn send(sink: &mut Sink, literal: &Literal) -> bool {
        let bytes = literal.bytes(PEER);
        let Some(out) = sink.begin(&Arc::new(path_to_peer()), PEER, bytes.len()) else { return false };
        out.copy_from_slice(&bytes);
        sink.seal();
        true
    }

    #[test]
    fn packets_come_out_in_order_until_the_room_is_used_up() {
        let mut sink = Sink { room: Some(2), ..Sink::default() };
        assert!(send(&mut sink, &ack(1, 1)));
        assert!(sink.begin(&Arc::new(path_to_peer()), PEER, 20).is_some());
        sink.abandon();
        assert!(send(&mut sink, &ack(2, 2)));
        assert!(!send(&mut sink, &ack(3, 3)));
        assert_eq!(sink.take(), [ack(1, 1), ack(2, 2)]);
        assert_eq!(sink.abandoned, 1);
        sink.room = None;
        assert!(send(&mut sink, &ack(3, 3)));
        assert_eq!(sink.take_one(), ack(3, 3));
    }

    #[test]
    fn the_hook_sees_the_whole_packet() {
        let mut sink = Sink { seal: Some(|_, packet| *packet.last_mut().unwrap() = 0x77), ..Sink::default() };
        assert!(send(&mut sink, &ack(1, 1)));
        assert_eq!(sink.sent[0].bytes.len(), 20);
        assert_eq!(sink.sent[0].bytes.last(), Some(&0x77));
    }
}
