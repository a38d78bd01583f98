//! Programs that sleep in poll(2) for a completion event which does not come.

use super::checker::{Checker, Found, related};
use super::completions::waiting;
use super::kind::LOST_WAKEUP;
use super::queues::Armed;

/// Looks, ten a second, at which nothing has happened to a queue, before it is asked who sleeps.
const LOOKS_AT_REST: u32 = 15;

impl Checker {
    /// The program has made a completion channel with this descriptor.
    pub fn channel_made(&mut self, address: u64, descriptor: i32) {
        self.channels.insert(address, descriptor);
    }

    /// The program destroyed a completion channel.
    pub fn channel_destroyed(&mut self, address: u64) {
        self.channels.remove(&address);
    }

    /// Ten times a second: the completion queues in which completions wait that came before the queue was
    /// armed, each with the descriptor that gets readable with the next completion only.
    pub fn look_at_waiting(&mut self) -> Vec<(u32, i32)> {
        let mut waiting = Vec::new();
        for (handle, cq) in &mut self.cqs {
            let Some(descriptor) = self.channels.get(&cq.channel) else { continue };
            let is_at_rest = cq.rest.0 == cq.activity;
            cq.rest = (cq.activity, if is_at_rest { cq.rest.1.saturating_add(1) } else { 0 });
            let waits_in_vain = cq.unpolled > 0 && cq.armed == Armed::Any && cq.events_queued == 0;
            if waits_in_vain && cq.rest.1 >= LOOKS_AT_REST && !cq.told_asleep {
                waiting.push((*handle, *descriptor));
            }
        }
        waiting
    }

    /// A thread sleeps until the descriptor of the queue's channel is readable.
    pub fn sleeps_in_poll(&mut self, handle: u32) {
        let Some(cq) = self.cqs.get_mut(&handle) else { return };
        if std::mem::replace(&mut cq.told_asleep, true) {
            return;
        }
        let (object, count, stack) = (cq.name.clone(), cq.unpolled, cq.armed_at.clone());
        let numbers = format!(
            "{} in {object}; they came before it was armed, here, so only a further completion will wake the \
             thread that sleeps until the channel's descriptor is readable",
            waiting(count)
        );
        let related = vec![related(format!("{object} was made here"), &cq.made)];
        self.found(&LOST_WAKEUP, Found { object, numbers, stack, related });
    }
}
