//! What the threads of the program do.

use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pumice_device::inspect::{DoingView, ThreadView, WaitsView};
use pumice_device::outside;
use pumice_device::outside::lineage::PerProcess;
use pumice_device::waits::{Doing, Waiter, Waits};

use super::state::lock;
use crate::ground::check;
use crate::ground::gate;
use crate::ground::thread_calls::{Thread, threads};
use crate::ground::waits::{self, Note, Waiting};
use crate::objects::events::AsyncQueue;

/// How long it asks: calls that sleep make an attempt each tenth of a second.
const WITHIN: Duration = Duration::from_millis(250);
/// How often it looks meanwhile in which system calls the threads are.
const LOOKS: u32 = 5;
/// Calls of a thread that polls by which a program also waits for something else. Others may be this
/// library's.
const FOREIGN: [&str; 7] = ["poll", "epoll_wait", "read", "accept", "wait", "connect", "sigwait"];

/// What each device tells other processes, by its index.
static VIEWS: PerProcess<Mutex<BTreeMap<usize, WaitsView>>> = PerProcess::new(|_| Mutex::default());

/// What was found out.
pub(super) struct Asked {
    /// Threads that wait.
    pub(super) waiters: Vec<Waiter>,
    /// All threads of the program, and return addresses of their frames.
    threads: Vec<(ThreadView, Vec<u64>)>,
}

impl Asked {
    /// Asks what the threads do with objects of a device.
    pub(super) fn now(device: usize) -> Asked {
        waits::begin();
        gate::look_anew();
        let looks = (0..LOOKS).map(|_| {
            outside::sleep(WITHIN / LOOKS);
            threads()
        });
        let looks: Vec<Vec<Thread>> = looks.collect();
        let notes = waits::end();
        gate::look_anew();
        let known = Known::of(device);
        let mut asked = Asked { waiters: Vec::new(), threads: Vec::new() };
        for note in &notes {
            asked.waiters.extend(known.waiter_of(note));
        }
        for thread in looks.last().into_iter().flatten() {
            let own: Vec<&Note> = notes.iter().filter(|note| note.thread == thread.number).collect();
            let seen: Vec<&Thread> =
                looks.iter().flatten().filter(|one| one.number == thread.number).collect();
            let view = known.view_of(thread, &seen, &own);
            if let (DoingView::SleepsOn { cqs }, true) = (&view.doing, own.is_empty()) {
                // It sleeps in poll(2), and has no stack that could be looked at.
                let channel = known.channel_of(cqs);
                asked.waiters.extend(
                    channel.map(|channel| Waiter { doing: Doing::SleepsOn(channel), stack: Vec::new() }),
                );
            }
            asked.threads.push((view, own.first().map(|note| note.stack.clone()).unwrap_or_default()));
        }
        asked
    }
}

/// From now on other processes are told this. `has_stacks`: with the lines of the program, which takes some
/// ms.
pub(super) fn keep(device: usize, asked: &Asked, waits: &Arc<Waits>, now_ns: u64, has_stacks: bool) {
    let threads = asked.threads.iter().map(|(view, stack)| {
        let stack = if has_stacks { check::frames_of(stack) } else { Vec::new() };
        ThreadView { stack, ..view.clone() }
    });
    let view = WaitsView {
        looks: view_of(device).map_or(1, |view| view.looks.saturating_add(1)),
        threads: threads.collect(),
        threads_left_out: 0,
        connects: waits.connects(now_ns),
        vain: waits.told_of_itself(),
    };
    VIEWS.lock().unwrap_or_else(PoisonError::into_inner).insert(device, view.clipped());
}

/// What other processes are told of a device.
pub(super) fn view_of(device: usize) -> Option<WaitsView> {
    VIEWS.lock().unwrap_or_else(PoisonError::into_inner).get(&device).cloned()
}

/// A completion queue of the device.
struct KnownQueue {
    number: u32,
    address: usize,
    channel: usize,
    /// The descriptor of its channel.
    descriptor: Option<i32>,
}

/// The completion queues of a device.
struct Known(Vec<KnownQueue>);

impl Known {
    fn of(device: usize) -> Known {
        let state = lock();
        let own = state.queues.iter().filter(|known| known.device == device);
        let own = own.filter_map(|known| {
            let queue = known.queue.upgrade()?;
            Some(KnownQueue {
                number: queue.handle().index,
                address: known.address,
                channel: known.channel,
                descriptor: queue.channel().map(|channel| channel.as_fd().as_raw_fd()),
            })
        });
        Known(own.collect())
    }

    /// The newest queue at an address.
    fn at(&self, address: usize) -> Option<u32> {
        self.0.iter().rfind(|queue| queue.address == address).map(|queue| queue.number)
    }

    fn of_channel(&self, channel: usize) -> Vec<u32> {
        let own = self.0.iter().filter(|queue| queue.channel == channel && channel != 0);
        own.map(|queue| queue.number).collect()
    }

    fn channel_of(&self, cqs: &[u32]) -> Option<u64> {
        let first = self.0.iter().find(|queue| cqs.contains(&queue.number))?;
        Some(first.channel as u64).filter(|channel| *channel != 0)
    }

    fn waiter_of(&self, note: &Note) -> Option<Waiter> {
        let doing = match note.what {
            Waiting::Polls(address) => Doing::Polls(self.at(address)?),
            Waiting::SleepsOn(channel) => Doing::SleepsOn(channel as u64),
            Waiting::SleepsForConnections { .. } => Doing::SleepsForConnections,
            Waiting::Acknowledges { .. } => Doing::Acknowledges,
        };
        Some(Waiter { doing, stack: note.stack.clone() })
    }

    fn view_of(&self, thread: &Thread, seen: &[&Thread], notes: &[&Note]) -> ThreadView {
        let polled: Vec<u32> = notes
            .iter()
            .filter_map(|note| if let Waiting::Polls(address) = note.what { self.at(address) } else { None })
            .collect();
        let slept_on = notes.iter().find_map(|note| match note.what {
            Waiting::SleepsOn(channel) => Some(self.of_channel(channel)).filter(|cqs| !cqs.is_empty()),
            _ => None,
        });
        let other = notes.iter().find_map(|note| match note.what {
            Waiting::SleepsForConnections { has_none, elsewhere } => {
                Some(DoingView::SleepsForConnections { has_none, elsewhere })
            }
            Waiting::Acknowledges { call, by, events } => {
                let (call, by) = (call.to_string(), by.to_string());
                Some(DoingView::Acknowledges { call, by, events })
            }
            Waiting::Polls(_) | Waiting::SleepsOn(_) => None,
        });
        let mut also = None;
        let doing = match slept_on {
            _ if !polled.is_empty() => {
                let names = seen.iter().filter_map(|one| Some(one.call?.name()));
                also = names.into_iter().find(|name| FOREIGN.contains(&name.as_str()));
                DoingView::Polls { cqs: polled }
            }
            Some(cqs) => DoingView::SleepsOn { cqs },
            None => other.unwrap_or_else(|| {
                let doing = self.in_the_kernel(thread, seen);
                if let DoingView::SleepsOn { .. } = doing {
                    // It may wait for other descriptors, too.
                    also = thread.call.map(|call| call.name());
                }
                doing
            }),
        };
        ThreadView { thread: thread.number, name: thread.name.clone(), doing, also, stack: Vec::new() }
    }

    /// What a thread does that makes no call of this library.
    fn in_the_kernel(&self, thread: &Thread, seen: &[&Thread]) -> DoingView {
        let Some(call) = thread.call.filter(|call| seen.iter().all(|one| one.call == Some(*call))) else {
            return DoingView::Runs;
        };
        let awaited = self.0.iter().filter(|queue| queue.descriptor.is_some_and(|fd| call.awaits(fd)));
        let cqs: Vec<u32> = awaited.map(|queue| queue.number).collect();
        if !cqs.is_empty() {
            return DoingView::SleepsOn { cqs };
        }
        if AsyncQueue::descriptors().iter().any(|fd| call.reads(*fd)) {
            return DoingView::SleepsForDevice;
        }
        DoingView::Calls { call: call.name(), awaits: call.awaited_thread() }
    }
}
