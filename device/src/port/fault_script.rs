//! Faults told in advance: this happens to the n-th packet from here to there.

use std::collections::BTreeMap;
use std::net::IpAddr;

/// What happens to a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It is lost.
    Drop,
    /// It arrives twice.
    Duplicate,
    /// One bit of the UDP payload is flipped, counted from the first byte's least significant one, modulo the
    /// length.
    FlipBit(u64),
    /// Only this many bytes of the UDP payload arrive.
    Truncate(usize),
    /// It arrives this much later than it would have, and later packets may overtake it.
    Delay {
        /// How much later.
        ns: u64,
    },
    /// It arrives with the ECN bits CE.
    MarkCongestion,
}

/// One fault of a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScriptedFault {
    /// The sender's address.
    pub from: IpAddr,
    /// The destination address, perhaps a multicast group.
    pub to: IpAddr,
    /// Which packet from there to here, counted from 0.
    pub packet_index: u64,
    /// What happens to it.
    pub fault: Fault,
}

/// A list of faults; several may name the same packet and happen together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FaultScript {
    faults: BTreeMap<(IpAddr, IpAddr, u64), Vec<Fault>>,
}

impl FaultScript {
    /// Nothing happens.
    pub fn new() -> FaultScript {
        FaultScript::default()
    }

    /// The script with one fault more.
    #[must_use]
    pub fn with(mut self, from: IpAddr, to: IpAddr, packet_index: u64, fault: Fault) -> FaultScript {
        self.faults.entry((from, to, packet_index)).or_default().push(fault);
        self
    }

    /// What happens to one packet, in the order it was written.
    pub fn faults(&self, from: IpAddr, to: IpAddr, packet_index: u64) -> &[Fault] {
        self.faults.get(&(from, to, packet_index)).map_or(&[], Vec::as_slice)
    }
}

impl FromIterator<ScriptedFault> for FaultScript {
    fn from_iter<I: IntoIterator<Item = ScriptedFault>>(faults: I) -> FaultScript {
        faults
            .into_iter()
            .fold(FaultScript::new(), |script, f| script.with(f.from, f.to, f.packet_index, f.fault))
    }
}
