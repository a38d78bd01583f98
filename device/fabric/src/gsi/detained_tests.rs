//! MADs for processes that do not keep up.

use std::io;
use std::net::IpAddr;
use std::os::fd::RawFd;

use super::*;
use pumice_model::port::batch::{GsoBatch, PacketCost, Peer, PortLimits, ReceivedBatch, TransmitError};
use pumice_model::port::group::ProcessGroup;

/// Other processes, of which those of these indices take nothing.
struct Others {
    full: Vec<u8>,
    taken: Vec<u8>,
}

impl Port for Others {
    fn transmit(&mut self, _now_ns: u64, _batch: &GsoBatch<'_>) -> Result<(), TransmitError> {
        Ok(())
    }
    fn receive(&mut self, _now_ns: u64, _handler: &mut dyn FnMut(&ReceivedBatch<'_>)) -> bool {
        false
    }
    fn limits(&self, _peer: Peer) -> PortLimits {
        let packet_cost = PacketCost::UDP_SOCKET;
        PortLimits {
            max_segments: 1,
            max_batch_bytes: 4096,
            receive_buffer_bytes: 4096,
            packet_cost,
            needs_icrc: true,
            waits_for_room: false,
        }
    }
    fn descriptors(&self) -> Vec<RawFd> {
        Vec::new()
    }
    fn join(&mut self, _group: IpAddr) -> io::Result<()> {
        Ok(())
    }
    fn leave(&mut self, _group: IpAddr) -> io::Result<()> {
        Ok(())
    }
    fn group(&mut self) -> Option<&mut dyn ProcessGroup> {
        Some(self)
    }
}

impl ProcessGroup for Others {
    fn try_forward(&mut self, process: ProcessIndex, _received: &ReceivedBatch<'_>) -> ForwardOutcome {
        if self.full.contains(&process.value()) {
            return ForwardOutcome::Full;
        }
        self.taken.push(process.value());
        ForwardOutcome::Done
    }
}

#[test]
fn a_process_that_takes_nothing_keeps_nothing_from_others_and_is_given_up_in_the_end() {
    let mut mads = DetainedMads::default();
    let mut others = Others { full: vec![2], taken: Vec::new() };
    for (index, until_ns) in [(2, 100), (3, 100), (2, 200), (4, 200)] {
        let (process, inbound) = (ProcessIndex::new(index), InboundMad::blank());
        mads.waiting.push_back(Detained { process, until_ns, inbound });
    }
    let waiting =
        |mads: &DetainedMads| mads.waiting.iter().map(|waiting| waiting.until_ns).collect::<Vec<_>>();
    let is_waiting = |mads: &DetainedMads, process| mads.is_waiting(ProcessIndex::new(process));
    assert!(is_waiting(&mads, 2) && !is_waiting(&mads, 5));
    mads.forward(50, &mut others);
    assert!(is_waiting(&mads, 2) && !is_waiting(&mads, 3), "what comes for 2 goes behind its others");
    assert_eq!((&others.taken[..], waiting(&mads)), (&[3, 4][..], vec![100, 200]));
    mads.forward(100, &mut others);
    assert_eq!(waiting(&mads), [200], "the first has waited long enough");
    others.full.clear();
    mads.forward(150, &mut others);
    assert_eq!((&others.taken[..], mads.is_empty()), (&[3, 4, 2][..], true));
}
