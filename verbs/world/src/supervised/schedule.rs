//! Who is next.

use super::deadlock::who_waits_for_what;
use super::signal_files::Asker;
use super::supervisor::Supervisor;
use super::threads::{Doing, ThreadId, VAIN};
use super::waits::{WaitFor, Woken};
use crate::error::WorldError;
use crate::options::Departure;

/// How often others go first before one that looks in vain has a turn all the same: they may do nothing that
/// ends by itself, and wait for what it does.
pub(crate) const PATIENCE: u32 = 64;
/// What a round of threads that all look in vain costs, at first and at most.
const VAIN_NS: u64 = 1_000;
const MOST_VAIN_SHIFT: u32 = 8;

/// Whether a thread that does this can go on.
const fn can_go(doing: &Doing) -> bool {
    matches!(doing, Doing::Program | Doing::Call(_) | Doing::Woken(..))
}

impl Supervisor {
    /// How many threads could go on now that do not look in vain, and how many in all.
    pub(crate) fn able_now(&self) -> (usize, usize) {
        let now_ns = self.clock.now_ns();
        let all = self.threads.threads.values();
        let able = all.filter(|thread| can_go(&thread.doing) && thread.rests_until_ns <= now_ns);
        able.fold((0, 0), |(working, able), thread| (working + usize::from(thread.vain < VAIN), able + 1))
    }

    /// Chooses who goes on. Lets time pass when all wait.
    pub(crate) fn choose(&mut self) -> Result<ThreadId, WorldError> {
        loop {
            self.wake();
            let now_ns = self.clock.now_ns();
            let all = self.threads.threads.iter();
            let able = all.filter(|(_, thread)| can_go(&thread.doing) && thread.rests_until_ns <= now_ns);
            let able: Vec<(ThreadId, u32)> = able.map(|(id, thread)| (*id, thread.vain)).collect();
            let working: Vec<ThreadId> =
                able.iter().filter(|(_, vain)| *vain < VAIN).map(|(id, _)| *id).collect();
            self.passed_over = if working.len() < able.len() { self.passed_over + 1 } else { 0 };
            if !working.is_empty() && self.passed_over < PATIENCE {
                return Ok(self.draw(&working));
            }
            self.passed_over = 0;
            if !working.is_empty() {
                let vain: Vec<_> = able.into_iter().filter(|(_, vain)| *vain >= VAIN).collect();
                return Ok(self.next_in_turn(&vain));
            }
            if able.is_empty() {
                let Some(next_ns) = self.next_ns() else {
                    return Err(self.cannot_go_on(who_waits_for_what(&self.threads)));
                };
                self.clock.reach(next_ns);
                continue;
            }
            // All look in vain: the longer they do, the more time passes between two looks.
            let least = able.iter().map(|(_, vain)| *vain).min().unwrap_or(VAIN);
            let cost_ns = VAIN_NS << (least - VAIN).min(MOST_VAIN_SHIFT);
            let left_ns = self.next_ns().map_or(cost_ns, |next_ns| next_ns.saturating_sub(now_ns));
            self.clock.pass(cost_ns.min(left_ns.max(1)));
            self.wake();
            return Ok(self.next_in_turn(&able));
        }
    }

    /// The run cannot go on.
    pub(crate) fn cannot_go_on(&self, who: String) -> WorldError {
        WorldError::Deadlock { who, departures: self.departures.clone() }
    }

    /// One of these: the one that went last, unless the seed has another one go on.
    fn draw(&mut self, able: &[ThreadId]) -> ThreadId {
        self.points += 1;
        let plain = self.last.filter(|last| able.contains(last)).or(able.first().copied());
        let switch = match &self.options.departures {
            Some(listed) => match listed.get(&self.points) {
                Some(Departure::Switch(index)) => Some(*index),
                _ => None,
            },
            None if able.len() < 2
                || !self.switches.strikes(&mut self.order, self.options.draws.switch_ppm) =>
            {
                None
            }
            None => {
                // One of the others.
                let index = self.order.below(able.len() as u64 - 1) as usize;
                let plain = able.iter().position(|one| Some(*one) == plain).unwrap_or(able.len());
                u32::try_from(index + usize::from(index >= plain)).ok()
            }
        };
        let switched = switch.and_then(|index| able.get(index as usize).copied().zip(Some(index)));
        let chosen = match (switched, plain) {
            (Some((chosen, index)), plain) if Some(chosen) != plain => {
                let name = |id: ThreadId| self.threads.get(id).map_or("", |thread| thread.name.as_str());
                let instead = plain.map_or("", name);
                let words = format!("{} went on instead of {instead} (event {})", name(chosen), self.events);
                self.departures.insert(self.points, (Departure::Switch(index), words));
                chosen
            }
            _ => plain.unwrap_or(ThreadId(0)),
        };
        self.last = Some(chosen);
        chosen
    }

    /// The next of these after the one that went last.
    fn next_in_turn(&mut self, able: &[(ThreadId, u32)]) -> ThreadId {
        let after = |(id, _): &&(ThreadId, u32)| self.last.is_none_or(|last| *id > last);
        let next = able.iter().find(after).or(able.first()).map_or(ThreadId(0), |(id, _)| *id);
        self.last = Some(next);
        next
    }

    /// When something happens though no thread does anything.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        let now_ns = self.clock.now_ns();
        let of_threads = self.threads.threads.values().filter_map(|thread| match &thread.doing {
            Doing::Waiting(_, wait) => wait.until_ns,
            Doing::InVfork(_) => None,
            _ => Some(thread.rests_until_ns).filter(|until_ns| *until_ns > now_ns),
        });
        of_threads.chain(self.timers.next_ns()).chain(self.alarms.next_ns()).min()
    }

    /// Ends the waits that have come to their end.
    fn wake(&mut self) {
        self.delivery.settle();
        let now_ns = self.clock.now_ns();
        if self.timers.fire(now_ns) {
            self.changes += 1;
        }
        if self.send_due_signals() {
            self.changes += 1;
            self.interrupt_waits();
        }
        let changes = self.changes;
        self.looked_at = changes;
        let has_signal_files = self.has_signal_files;
        for thread in self.threads.threads.values_mut() {
            let asker = Asker::new(thread.tracee, has_signal_files);
            let Doing::Waiting(call, wait) = &mut thread.doing else { continue };
            let is_over = wait.until_ns.is_some_and(|until_ns| until_ns <= now_ns);
            let is_ready = match &wait.on {
                WaitFor::Descriptors(interests) if wait.looked_at != changes => {
                    wait.looked_at = changes;
                    let process = self.descriptors.get(&thread.process);
                    process.is_none_or(|process| process.any_is_ready(asker, interests))
                }
                WaitFor::Lock if wait.looked_at != changes => {
                    wait.looked_at = changes;
                    true
                }
                _ => false,
            };
            if is_ready || is_over {
                let why = if is_ready { Woken::Ready } else { Woken::TimedOut };
                thread.doing = Doing::Woken(*call, why);
                thread.vain = 0;
            }
        }
    }
}
