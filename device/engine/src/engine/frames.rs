//! Ethernet frames from the interfaces to raw packet queue pairs.

use std::os::fd::RawFd;

use crate::ethernet::Ethernet;

use super::drive::Engine;
use crate::resources::MappingCheckPolicy;

/// Number of frames that one call takes before packets get a turn.
const RECEIVE_FRAMES: usize = 64;

impl Engine {
    /// Passes frames to their queue pairs, until there are none or completions wait. Returns whether there
    /// were any.
    #[cold]
    pub(super) fn receive_frames(&mut self, checks: MappingCheckPolicy) -> bool {
        let Some(mut ethernet) = self.resources.ethernet.take() else { return false };
        let mut any = false;
        for _ in 0..RECEIVE_FRAMES {
            if self.resources.completions.new_completions || !self.receive_frame(&mut ethernet, checks) {
                break;
            }
            any = true;
        }
        self.resources.ethernet = Some(ethernet);
        any
    }

    /// Passes one frame to the queue pairs whose rules it fits. Returns false if there is none.
    fn receive_frame(&mut self, ethernet: &mut Ethernet, checks: MappingCheckPolicy) -> bool {
        let Some((takers, frame)) = ethernet.receive() else { return false };
        for qpn in takers {
            let Some((index, entry)) = self.queue_pairs.by_number(qpn) else { continue };
            entry.traffic.received(frame.len());
            let mut host = self.resources.host(checks.of_datagrams(entry.qp.context()));
            if let Err(dropped) = entry.qp.handle_frame(frame, &mut host) {
                self.resources.count(dropped.0, 1);
            }
            self.turns.touched.push(index);
        }
        true
    }

    /// Returns the descriptors to poll(2) for readability. They change when multicast groups are joined and
    /// left, and when raw packet queue pairs are created and destroyed.
    pub(crate) fn descriptors(&self) -> Vec<RawFd> {
        let mut all = self.port.descriptors();
        all.extend(self.resources.ethernet.iter().flat_map(|ethernet| ethernet.descriptors()));
        all
    }

    /// Reports whether frames wait that no descriptor signals.
    pub(super) fn has_frames(&self) -> bool {
        self.resources.ethernet.as_ref().is_some_and(|ethernet| ethernet.has_looped())
    }
}
