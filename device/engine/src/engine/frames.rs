//! Ethernet frames from the interfaces to raw packet queue pairs.

use crate::ethernet::Ethernet;

use super::dispatch::PacketReceivers;

/// Number of frames that one call takes before packets get a turn.
const RECEIVE_FRAMES: usize = 64;

impl PacketReceivers<'_> {
    /// Passes frames to their queue pairs, until there are none or completions wait. Returns whether there
    /// were any.
    #[cold]
    pub(super) fn receive_frames(&mut self) -> bool {
        let Some(mut ethernet) = self.resources.ethernet.take() else { return false };
        let mut any = false;
        for _ in 0..RECEIVE_FRAMES {
            if self.resources.completions.new_completions || !self.receive_frame(&mut ethernet) {
                break;
            }
            any = true;
        }
        self.resources.ethernet = Some(ethernet);
        any
    }

    /// Passes one frame to the queue pairs whose rules it fits. Returns false if there is none.
    fn receive_frame(&mut self, ethernet: &mut Ethernet) -> bool {
        let Some((takers, frame)) = ethernet.receive() else { return false };
        for qpn in takers {
            let Some((index, entry)) = self.entries.queue_pairs.by_number(qpn) else { continue };
            entry.traffic.received(frame.len());
            let mut host = self.resources.host(self.checks.of_datagrams(entry.qp.context()));
            if let Err(dropped) = entry.qp.handle_frame(frame, &mut host) {
                self.resources.count(dropped.0, 1);
            }
            self.touched.push(index);
        }
        true
    }
}
