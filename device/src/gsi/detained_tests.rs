//! MADs for processes that do not keep up.

use std::io;
use std::net::IpAddr;
use std::os::fd::RawFd;

use pumice_transport::cm::CmConfig;
use pumice_transport::mad::ServiceId;
use pumice_transport::types::Gid;

use super::envelope::Inbound;
use super::{Detained, DirectoryError, Gsi, HandedOn, Occupant, ServiceDirectory, ServiceEntry};
use crate::port::{Port, PortLimits, Received, Train, TransmitError};

/// Other processes, of which those of these slots take nothing.
struct Others {
    full: Vec<u8>,
    taken: Vec<u8>,
}

impl Port for Others {
    fn transmit(&mut self, _now_ns: u64, _train: &Train<'_>) -> Result<(), TransmitError> {
        Ok(())
    }
    fn receive(&mut self, _now_ns: u64, _handler: &mut dyn FnMut(&Received<'_>)) -> bool {
        false
    }
    fn limits(&self) -> PortLimits {
        PortLimits { max_segments: 1, max_train_bytes: 4096, receive_buffer_bytes: 4096 }
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
    fn services(&mut self) -> Option<&mut dyn ServiceDirectory> {
        Some(self)
    }
}

impl ServiceDirectory for Others {
    fn publish(&mut self, _entry: &ServiceEntry) -> Result<(), DirectoryError> {
        Ok(())
    }
    fn listen(&mut self, _entry: &ServiceEntry) {}
    fn withdraw(&mut self, _entry: &ServiceEntry) {}
    fn find(&mut self, _service_id: ServiceId, _local: Gid) -> Vec<u8> {
        Vec::new()
    }
    fn hand_on(&mut self, slot: u8, _received: &Received<'_>) -> HandedOn {
        if self.full.contains(&slot) {
            return HandedOn::Full;
        }
        self.taken.push(slot);
        HandedOn::Done
    }
    fn occupant(&mut self, _slot: u8, _address: Gid) -> Occupant {
        Occupant::Unknown
    }
    fn is_address_of_another(&mut self, _address: Gid) -> bool {
        false
    }
    fn lives(&mut self, _slot: u8, _who: u64) -> bool {
        true
    }
}

#[test]
fn a_process_that_takes_nothing_keeps_nothing_from_others_and_is_given_up_in_the_end() {
    let mut gsi = Gsi::new(CmConfig::new(1), 1, 1);
    let mut others = Others { full: vec![2], taken: Vec::new() };
    for (slot, until_ns) in [(2, 100), (3, 100), (2, 200), (4, 200)] {
        gsi.detained.push_back(Detained { slot, until_ns, inbound: Inbound::blank() });
    }
    let waiting = |gsi: &Gsi| gsi.detained.iter().map(|waiting| waiting.until_ns).collect::<Vec<_>>();
    gsi.forward_detained(50, &mut others);
    assert_eq!((&others.taken[..], waiting(&gsi)), (&[3, 4][..], vec![100, 200]));
    gsi.forward_detained(100, &mut others);
    assert_eq!(waiting(&gsi), [200], "the first has waited long enough");
    others.full.clear();
    gsi.forward_detained(150, &mut others);
    assert_eq!((&others.taken[..], gsi.has_backlog()), (&[3, 4, 2][..], false));
}
