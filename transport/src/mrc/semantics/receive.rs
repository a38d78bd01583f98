//! Messages of a responder. Packets are placed on arrival, but messages complete in the order of their PSNs.
//! The immediate data of a WRITE waits until then.

use alloc::vec;
use alloc::vec::Vec;

use crate::mrc::wire::{MrcOpcode, WriteHeaders};
use crate::wire::NakCode;

/// The headers of a packet, retained until all packets before it have arrived.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct HeaderSlot {
    address: u64,
    rkey: u32,
    length: u32,
    msn: u16,
    is_first: bool,
    is_last: bool,
    solicited: bool,
    imm: Option<[u8; 4]>,
}

impl HeaderSlot {
    pub(crate) fn of(opcode: MrcOpcode, solicited: bool, write: &WriteHeaders) -> HeaderSlot {
        let info = opcode.info();
        HeaderSlot {
            address: write.reth.address,
            rkey: write.reth.rkey,
            length: write.reth.length,
            msn: write.meth.msn,
            is_first: info.is_first,
            is_last: info.is_last,
            solicited,
            imm: write.imm.map(|imm| imm.0),
        }
    }
}

/// The effect of a packet that is next in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Delivered {
    /// The message of the packet continues.
    Part,
    /// The packet ends a WRITE.
    Write,
    /// The packet ends a WRITE with immediate, which consumes a receive request.
    WriteImm { imm: [u8; 4], length: u32, solicited: bool },
}

/// The message whose packets are next in order.
#[derive(Debug, Clone, Copy)]
struct OpenMessage {
    msn: u16,
    rkey: u32,
    length: u32,
    next_address: u64,
    packets_left: u64,
}

/// Checks that the lengths of a packet and of its message match its opcode.
pub(crate) fn check_packet(
    opcode: MrcOpcode,
    message_bytes: u32,
    payload_bytes: usize,
    mtu_bytes: u32,
) -> Result<(), NakCode> {
    let info = opcode.info();
    let payload = u32::try_from(payload_bytes).unwrap_or(u32::MAX);
    let fits = match (info.is_first, info.is_last) {
        (true, true) => payload == message_bytes && payload <= mtu_bytes,
        (true, false) => payload == mtu_bytes && message_bytes > mtu_bytes,
        (false, false) => {
            payload == mtu_bytes && message_bytes / 2 >= mtu_bytes && message_bytes > 2 * mtu_bytes
        }
        (false, true) => message_bytes > mtu_bytes && payload == (message_bytes - 1) % mtu_bytes + 1,
    };
    if fits { Ok(()) } else { Err(NakCode::InvalidRequest) }
}

#[derive(Debug)]
pub(crate) struct ReceiveOrder {
    slots: Vec<HeaderSlot>,
    mtu_bytes: u32,
    open: Option<OpenMessage>,
    /// Number of messages that have completed, modulo 2^24.
    completed: u32,
    stashed: u16,
    most_stashed: u16,
}

impl ReceiveOrder {
    /// Creates the order with a ring of at least `slots` slots, rounded up to a power of two, and at most
    /// `max_wimm` WRITEs with immediate in flight.
    pub(crate) fn new(slots: usize, mtu_bytes: u32, max_wimm: u16) -> ReceiveOrder {
        ReceiveOrder {
            slots: vec![HeaderSlot::default(); slots.next_power_of_two()],
            mtu_bytes,
            open: None,
            completed: 0,
            stashed: 0,
            most_stashed: max_wimm.max(1),
        }
    }

    /// Returns the number of messages that have completed, modulo 2^24.
    pub(crate) fn completed(&self) -> u32 {
        self.completed
    }

    /// Returns the largest number of WRITEs with immediate in flight.
    pub(crate) fn max_wimm(&self) -> u16 {
        self.most_stashed
    }

    /// Checks that one more WRITE with immediate may wait for its turn.
    pub(crate) fn check_stash(&self, opcode: MrcOpcode) -> Result<(), NakCode> {
        let is_full = opcode.has_imm() && self.stashed >= self.most_stashed;
        if is_full { Err(NakCode::InvalidRequest) } else { Ok(()) }
    }

    /// Stores the headers of a packet until its turn.
    pub(crate) fn stash(&mut self, number: u64, slot: HeaderSlot) {
        self.stashed += u16::from(slot.imm.is_some());
        let index = number as usize & (self.slots.len() - 1);
        if let Some(place) = self.slots.get_mut(index) {
            *place = slot;
        }
    }

    /// Handles a packet that is next in order: it and all packets before it have arrived.
    pub(crate) fn deliver(&mut self, number: u64) -> Result<Delivered, NakCode> {
        let index = number as usize & (self.slots.len() - 1);
        let slot = self.slots.get(index).copied().unwrap_or_default();
        self.stashed = self.stashed.saturating_sub(u16::from(slot.imm.is_some()));
        let mtu = u64::from(self.mtu_bytes);
        let next_address = slot.address.wrapping_add(mtu);
        match (self.open.as_mut(), slot.is_first) {
            (None, true) if slot.is_last => {}
            (None, true) => {
                let packets_left = u64::from(slot.length).div_ceil(mtu) - 1;
                let HeaderSlot { msn, rkey, length, .. } = slot;
                self.open = Some(OpenMessage { msn, rkey, length, next_address, packets_left });
                return Ok(Delivered::Part);
            }
            (Some(open), false) => {
                let is_next = (slot.msn, slot.rkey, slot.length) == (open.msn, open.rkey, open.length)
                    && slot.address == open.next_address
                    && slot.is_last == (open.packets_left == 1);
                if !is_next {
                    return Err(NakCode::InvalidRequest);
                }
                open.packets_left -= 1;
                open.next_address = next_address;
                if !slot.is_last {
                    return Ok(Delivered::Part);
                }
            }
            _ => return Err(NakCode::InvalidRequest),
        }
        self.open = None;
        self.completed = (self.completed + 1) & 0xff_ffff;
        Ok(match slot.imm {
            Some(imm) => Delivered::WriteImm { imm, length: slot.length, solicited: slot.solicited },
            None => Delivered::Write,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proofs::check;

    /// Checks that the packets of a message have valid lengths, and that no other lengths are valid.
    #[test]
    fn lengths_of_packets_follow_from_the_message() {
        check(|from| {
            let mtu = from.one_of(&[256, 1024, 4096]);
            let magnitude = from.between(4, 32);
            let length = from.up_to(1 << magnitude).min(u32::MAX.into()) as u32;
            let count = length.div_ceil(mtu).max(1);
            let index = from.up_to(u64::from(count) - 1) as u32;
            let payload = if index + 1 < count { mtu } else { length - index * mtu };
            let opcode = MrcOpcode::of_write(index == 0, index + 1 == count, from.bool());
            assert_eq!(check_packet(opcode, length, payload as usize, mtu), Ok(()));
            let other = from.up_to(5000) as usize;
            assert!(other == payload as usize || check_packet(opcode, length, other, mtu).is_err());
            for (first, last) in [(true, true), (true, false), (false, false), (false, true)] {
                let wrong = MrcOpcode::of_write(first, last, false);
                if check_packet(wrong, length, payload as usize, mtu).is_ok() {
                    // A full packet may be in the middle of a message that is long enough.
                    assert!(payload == mtu || (first, last) == (index == 0, index + 1 == count));
                }
            }
        });
    }
}
