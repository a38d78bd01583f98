//! The UDP source port from which the packets of a connection come.
//!
//! A connection's packets have one source port. Devices compute it from the flow label or the two queue pair
//! numbers and do not change it; pumice sends from the RoCE port itself where it cannot have the computed
//! one. So a queue pair learns the port of its peer, and drops and counts packets from other ports. An
//! attacker who can bind a UDP socket to the peer's address, as every user of the peer's host can, would then
//! have to send from that very port, which its owner holds.
//!
//! **How it is learnt.** From the first packet that is *exact*: a request with the PSN that is expected, or a
//! response to an outstanding request.
//!
//! **When it may change.** Never, if it is the RoCE port: only the process that receives there can send from
//! it. Otherwise the peer may get another flow label or fail over to another link. An exact packet from
//! another port is accepted then, unless a guess was made lately. A *guess* is any other packet from another
//! port. After it comes a pause in which packets from other ports are not accepted. The first pause is
//! shorter than a transport timer, so packets that were lost while the port changed are sent again after it;
//! further guesses double it up to a minute. A sender that tries all 2^24 PSNs then needs years instead of
//! seconds. Requests that were executed before are answered again in any case: their answers may have been
//! lost with the old link, and go to the peer, even if another sender asked for them.
//!
//! **Before a port is known,** only packets far from the expected PSN are guesses: the first packets may be
//! lost. The pause after a guess does not stop an exact packet from the RoCE port, or from the port that this
//! side computed for itself: without labels, or with equal ones, the peer has computed the same.

use crate::wire::Psn;

/// Value of a port that has not been learnt.
const UNKNOWN: u32 = 1 << 16;
/// Largest distance from the expected PSN at which a request may still be the peer's.
const NEAR_PACKETS: i32 = 512;
const FIRST_BEHIND: i32 = -NEAR_PACKETS;
/// Length of the pause after the first guess.
const FIRST_PAUSE_NS: u64 = 10_000_000;
/// Longest pause; guesses are forgotten after as long a time without one.
const LONGEST_PAUSE_NS: u64 = 60_000_000_000;

/// Rating of how well a packet fits the packets that the peer is expected to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fit {
    /// The packet is the expected one.
    Exact,
    /// The packet answers an outstanding request, and no port is known.
    Answer,
    /// The packet was handled before: it is answered again.
    Behind,
    /// The packet is a few PSNs ahead: those between may be lost.
    Near,
    /// The sender of the packet does not know the connection's PSNs.
    Far,
}

impl Fit {
    /// Rates a request by its PSN.
    pub(crate) const fn of_request(psn: Psn, expected: Psn) -> Fit {
        match psn.since(expected) {
            0 => Fit::Exact,
            FIRST_BEHIND..0 => Fit::Behind,
            1..NEAR_PACKETS => Fit::Near,
            _ => Fit::Far,
        }
    }
}

/// Ports that a packet's origin is judged by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PacketOrigin {
    /// UDP source port of the packet.
    pub(crate) port: u16,
    /// UDP destination port of the packet.
    pub(crate) roce_port: u16,
    /// Port that this side sends from.
    pub(crate) own_port: u16,
}

/// Decision about a packet from another port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PortVerdict {
    /// Handle the packet.
    Accept,
    /// Drop and count the packet.
    Drop,
    /// Drop and count the packet; it is the first guess after a pause.
    DropGuess,
}

/// The UDP source port of a connection's peer.
#[derive(Debug, Clone)]
pub(crate) struct PeerPort {
    port: u32,
    /// True if it is the RoCE port, which never changes.
    certain: bool,
    pause_ns: u64,
    pause_until_ns: u64,
    guess_ns: u64,
}

impl Default for PeerPort {
    fn default() -> PeerPort {
        PeerPort { port: UNKNOWN, certain: false, pause_ns: 0, pause_until_ns: 0, guess_ns: 0 }
    }
}

impl PeerPort {
    /// Reports whether a packet comes from the peer's port, as far as that is known.
    #[inline]
    pub(crate) fn is(&self, source_port: u16) -> bool {
        self.port == u32::from(source_port)
    }

    /// Returns the port, if it is known.
    pub(crate) fn known(&self) -> Option<u16> {
        u16::try_from(self.port).ok()
    }

    /// Decides about a packet from a port that is not the peer's, or before the peer's port is known.
    pub(crate) fn judge(&mut self, now_ns: u64, origin: PacketOrigin, fit: Fit) -> PortVerdict {
        let PacketOrigin { port: source_port, roce_port, own_port } = origin;
        if self.certain {
            return self.drop_guess(now_ns);
        }
        let unknown = self.port == UNKNOWN;
        // Another user cannot have the RoCE port of an address where pumice lives, nor easily the computed
        // one, which a peer takes before it sends.
        let is_likely = source_port == roce_port || source_port == own_port;
        let paused = now_ns < self.pause_until_ns && !(unknown && is_likely);
        match fit {
            Fit::Exact if paused => PortVerdict::Drop,
            Fit::Exact => {
                self.pin(source_port, roce_port);
                PortVerdict::Accept
            }
            // The first answer can be forged only within one round trip: no pauses are needed.
            Fit::Answer => {
                self.pin(source_port, roce_port);
                PortVerdict::Accept
            }
            Fit::Behind | Fit::Near if unknown => PortVerdict::Accept,
            // A wrong PSN is the consumer's mistake more often than an attack, and the answer shows the
            // mistake to the peer.
            Fit::Far if unknown => {
                self.note_guess(now_ns);
                PortVerdict::Accept
            }
            Fit::Behind => {
                self.note_guess(now_ns);
                PortVerdict::Accept
            }
            Fit::Near | Fit::Far => self.drop_guess(now_ns),
        }
    }

    fn drop_guess(&mut self, now_ns: u64) -> PortVerdict {
        if self.note_guess(now_ns) { PortVerdict::DropGuess } else { PortVerdict::Drop }
    }

    fn pin(&mut self, source_port: u16, roce_port: u16) {
        self.port = u32::from(source_port);
        self.certain = source_port == roce_port;
    }

    /// Begins a pause unless there is one; returns true if it did.
    fn note_guess(&mut self, now_ns: u64) -> bool {
        let since_last_ns = now_ns.saturating_sub(core::mem::replace(&mut self.guess_ns, now_ns));
        if now_ns < self.pause_until_ns {
            return false;
        }
        let forgotten = self.pause_ns == 0 || since_last_ns > LONGEST_PAUSE_NS;
        self.pause_ns = if forgotten { FIRST_PAUSE_NS } else { (2 * self.pause_ns).min(LONGEST_PAUSE_NS) };
        self.pause_until_ns = now_ns.saturating_add(self.pause_ns);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROCE: u16 = 4791;
    const OWN: u16 = 0xc777;
    const SECOND_NS: u64 = 1_000_000_000;

    fn from(port: u16) -> PacketOrigin {
        PacketOrigin { port, roce_port: ROCE, own_port: OWN }
    }

    #[test]
    fn fits_are_cut_at_the_window_and_wrap() {
        let fit = |psn: u32| Fit::of_request(Psn::new(psn), Psn::new(100));
        assert_eq!((fit(100), fit(99), fit(101)), (Fit::Exact, Fit::Behind, Fit::Near));
        assert_eq!((fit(611), fit(612)), (Fit::Near, Fit::Far));
        assert_eq!((fit(100_u32.wrapping_sub(512)), fit(100_u32.wrapping_sub(513))), (Fit::Behind, Fit::Far));
        assert_eq!(fit(100 + (1 << 23)), Fit::Far);
    }

    #[test]
    fn the_roce_port_is_for_ever() {
        let mut port = PeerPort::default();
        assert_eq!(port.judge(0, from(ROCE), Fit::Exact), PortVerdict::Accept);
        assert!(port.is(ROCE) && !port.is(50_000));
        assert_eq!(port.judge(0, from(50_000), Fit::Exact), PortVerdict::DropGuess);
        assert_eq!(port.judge(1000 * SECOND_NS, from(50_000), Fit::Exact), PortVerdict::DropGuess);
        assert_eq!(port.known(), Some(ROCE));
    }

    #[test]
    fn a_nics_port_changes_with_an_exact_packet() {
        let mut port = PeerPort::default();
        assert_eq!(port.judge(0, from(0xc001), Fit::Exact), PortVerdict::Accept);
        assert_eq!(port.judge(6, from(0xc002), Fit::Exact), PortVerdict::Accept);
        assert!(port.is(0xc002));
    }

    /// A new port whose first packet is lost or does not fit: the retransmission comes after the pause.
    #[test]
    fn one_wrong_packet_delays_a_change_by_less_than_a_transport_timer() {
        for fit in [Fit::Behind, Fit::Near, Fit::Far] {
            let mut port = PeerPort::default();
            port.judge(0, from(0xc001), Fit::Exact);
            let verdict = if fit == Fit::Behind { PortVerdict::Accept } else { PortVerdict::DropGuess };
            assert_eq!(port.judge(5, from(0xc002), fit), verdict);
            assert_eq!(port.judge(6, from(0xc002), Fit::Exact), PortVerdict::Drop);
            assert_eq!(port.judge(6, from(0xc002), Fit::Behind), PortVerdict::Accept);
            assert_eq!(port.judge(67_000_000, from(0xc002), Fit::Exact), PortVerdict::Accept);
        }
    }

    #[test]
    fn an_answer_to_a_request_under_way_tells_the_port_even_during_a_pause() {
        let mut port = PeerPort::default();
        assert_eq!(port.judge(0, from(0xc002), Fit::Far), PortVerdict::Accept);
        assert_eq!(port.judge(1, from(0xc001), Fit::Answer), PortVerdict::Accept);
        assert!(port.is(0xc001));
    }

    /// A sweep over all PSNs, half a million each second, does not change the port; this holds for every
    /// expected PSN.
    #[test]
    fn a_sweep_over_all_psns_moves_nothing() {
        for known in [true, false] {
            let mut port = PeerPort::default();
            if known {
                port.judge(0, from(0xc001), Fit::Exact);
            }
            // The expected PSN is also one that many applications begin with.
            let expected = Psn::new(if known { 3 } else { 0x89_abcd });
            for psn in 0..1_u32 << 24 {
                let now_ns = SECOND_NS + u64::from(psn) * 2_000;
                let verdict = port.judge(now_ns, from(40_000), Fit::of_request(Psn::new(psn), expected));
                if psn == expected.value() {
                    assert_eq!(verdict, PortVerdict::Drop);
                }
            }
            assert_eq!(port.known(), known.then_some(0xc001));
        }
    }

    #[test]
    fn the_peer_with_a_likely_port_begins_during_a_sweep() {
        for likely in [ROCE, OWN] {
            let mut port = PeerPort::default();
            assert_eq!(port.judge(SECOND_NS, from(40_000), Fit::Far), PortVerdict::Accept);
            assert_eq!(port.judge(SECOND_NS, from(40_000), Fit::Exact), PortVerdict::Drop);
            assert_eq!(port.judge(SECOND_NS, from(likely), Fit::Exact), PortVerdict::Accept);
            assert!(port.is(likely));
        }
    }

    #[test]
    fn pauses_double_up_to_a_minute_and_are_forgotten_after_one() {
        let mut port = PeerPort::default();
        port.judge(0, from(0xc001), Fit::Exact);
        let mut now_ns = SECOND_NS;
        let mut pauses = 0;
        while port.pause_ns < LONGEST_PAUSE_NS {
            assert_eq!(port.judge(now_ns, from(1), Fit::Far), PortVerdict::DropGuess);
            assert_eq!(port.judge(now_ns, from(1), Fit::Far), PortVerdict::Drop);
            now_ns = port.pause_until_ns;
            pauses += 1;
        }
        assert_eq!(pauses, 14);
        now_ns += LONGEST_PAUSE_NS + 1;
        assert_eq!(port.judge(now_ns, from(1), Fit::Far), PortVerdict::DropGuess);
        assert_eq!(port.pause_ns, FIRST_PAUSE_NS);
    }
}
