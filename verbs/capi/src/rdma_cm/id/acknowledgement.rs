//! The structure of an identifier that programs see, and acknowledgement of its fetched events.
//!
//! Acknowledgement of fetched events: destroying an identifier, leaving a group and moving an identifier wait
//! until they are acknowledged, and a channel is not destroyed while a thread sleeps in it.
//!
//! The structure of an identifier that programs see: `struct rdma_cm_id` and the path record that it points
//! at.
//!
//! Its fields are read and written one by one and by value, so that no reference to the program's memory
//! exists: the program may read the structure at any time and writes some fields itself.

use std::ffi::c_void;
use std::time::Duration;

use pumice_calls::Call;
use pumice_device::outside;
use pumice_device::platform::event_queue::Awaited;
use pumice_device::settings::LogLevel;

use crate::abi::{
    ibv_comp_channel, ibv_context, ibv_cq, ibv_pd, ibv_qp, ibv_sa_path_rec, ibv_srq, rdma_cm_event,
    rdma_cm_id, rdma_event_channel, rdma_route,
};
use crate::check;
use crate::entry::handles::{SharedStruct, show, shown};
use crate::log::log_at;
use crate::platform::{ThreadNumber, is_alive, own_thread};
use crate::rdma_cm::constants::{EVENT_KINDS, event_name};

/// The structure that the program's pointer leads to.
#[repr(C)]
pub(crate) struct IdFields {
    c: SharedStruct<rdma_cm_id>,
    /// Path record that `route.path_rec` points at once there is a path.
    path: SharedStruct<ibv_sa_path_rec>,
}

macro_rules! readable {
    ($($field:ident: $type:ty;)*) => {
        impl IdFields {
            $(
                pub(crate) fn $field(&self) -> $type {
                    shown!(self.c, $field)
                }
            )*
        }
    };
}

macro_rules! writable {
    ($($field:ident, $set:ident: $type:ty;)*) => {
        impl IdFields {
            $(
                pub(crate) fn $set(&self, value: $type) {
                    show!(self.c, $field = value)
                }
            )*
        }
    };
}

readable! {
    verbs: *mut ibv_context;
    context: *mut c_void;
    qp: *mut ibv_qp;
    route: rdma_route;
    ps: u32;
    event: *mut rdma_cm_event;
    send_cq_channel: *mut ibv_comp_channel;
    send_cq: *mut ibv_cq;
    recv_cq_channel: *mut ibv_comp_channel;
    recv_cq: *mut ibv_cq;
    srq: *mut ibv_srq;
    pd: *mut ibv_pd;
    qp_type: u32;
    port_num: u8;
}

writable! {
    verbs, set_verbs: *mut ibv_context;
    channel, set_channel: *mut rdma_event_channel;
    qp, set_qp: *mut ibv_qp;
    route, set_route: rdma_route;
    port_num, set_port_num: u8;
    event, set_event: *mut rdma_cm_event;
    send_cq_channel, set_send_cq_channel: *mut ibv_comp_channel;
    send_cq, set_send_cq: *mut ibv_cq;
    recv_cq_channel, set_recv_cq_channel: *mut ibv_comp_channel;
    recv_cq, set_recv_cq: *mut ibv_cq;
    srq, set_srq: *mut ibv_srq;
    pd, set_pd: *mut ibv_pd;
}

impl IdFields {
    pub(crate) fn new(c: rdma_cm_id) -> IdFields {
        IdFields { c: SharedStruct::new(c), path: SharedStruct::new(ibv_sa_path_rec::default()) }
    }

    /// Writes a path into the structure.
    pub(crate) fn set_path(&self, record: ibv_sa_path_rec) {
        let path = self.path.as_ptr();
        // SAFETY: the cell lives as long as `self`, which also limits the use of the program's pointer to it.
        unsafe { path.write(record) };
        self.set_route(rdma_route { path_rec: path, num_paths: 1, ..self.route() });
    }
}

/// Numbers of events, of each `RDMA_CM_EVENT_*`, of an identifier or of its membership in a group, that the
/// program has fetched and not acknowledged.
#[derive(Default)]
pub(crate) struct UnacknowledgedEvents {
    left: Awaited<[u32; EVENT_KINDS]>,
}

impl UnacknowledgedEvents {
    /// Time after which the checker is notified that a call waits, and further time after which it is logged.
    const REPORT_AFTER: Duration = Duration::from_secs(1);
    const LOG_AFTER: Duration = Duration::from_secs(1);

    pub(crate) fn fetched(&self, event: u32) {
        self.change(event, |count| count.saturating_add(1));
    }

    pub(crate) fn acknowledged(&self, event: u32) {
        self.change(event, |count| count.saturating_sub(1));
    }

    fn change(&self, event: u32, change: impl FnOnce(u32) -> u32) {
        self.left.change(|left| {
            if let Some(count) = left.get_mut(event as usize) {
                *count = change(*count);
            }
        });
    }

    /// Waits without a limit, as rdma-core does, until all are acknowledged, because a thread of the program
    /// may still read one. After a while it logs that it waits. `call` is the call that waits, `id` the
    /// address of the identifier.
    ///
    /// The caller must hold no lock.
    pub(crate) fn wait(&self, call: Call, id: usize) {
        let all = |left: &[u32; EVENT_KINDS]| left.iter().all(|count| *count == 0);
        if self.left.wait_for(UnacknowledgedEvents::REPORT_AFTER, all) {
            return;
        }
        let names = self.left.look(named);
        check::with_checker(|checker| checker.waits_for_cm_acknowledgements(id as u64, &names));
        if self.left.wait_for(UnacknowledgedEvents::LOG_AFTER, all) {
            return;
        }
        let names = self.left.look(named);
        log_at(LogLevel::Error, || {
            format!(
                "{call} waits, as librdmacm's does, until the program has called rdma_ack_cm_event for what \
                 rdma_get_cm_event gave it of identifier {id:#x}: {names}"
            )
        });
        self.left.wait(all);
    }
}

/// Returns the names, as in "RDMA_CM_EVENT_ESTABLISHED, 2 of RDMA_CM_EVENT_CONNECT_REQUEST".
fn named(left: &[u32; EVENT_KINDS]) -> String {
    let some = left.iter().zip(0..).filter(|(count, _)| **count > 0);
    let words = some.map(|(count, event)| match (count, event_name(event).to_string_lossy()) {
        (1, name) => name.into_owned(),
        (count, name) => format!("{count} of {name}"),
    });
    words.collect::<Vec<_>>().join(", ")
}

/// The thread that fetches a channel's events.
#[derive(Default)]
pub(crate) struct ChannelReader {
    state: Awaited<ReaderState>,
}

#[derive(Default, Clone, Copy)]
struct ReaderState {
    thread: Option<ThreadNumber>,
    /// True if it waits in the channel.
    waits: bool,
}

impl ChannelReader {
    /// Longest time that a thread that has just handled an event may take until it waits for the next.
    const TIMEOUT: Duration = Duration::from_millis(50);

    /// Records that the calling thread begins to wait, or returns to the program.
    pub(crate) fn is_at(&self, waits: bool) {
        self.state.change(|state| *state = ReaderState { thread: Some(own_thread()), waits });
    }

    /// Reports whether another thread waits in the channel: one that fetched an event is expected to come
    /// back.
    pub(crate) fn still_waits(&self) -> bool {
        let begun = outside::now();
        let reader = self.state.look(|state| state.thread);
        let Some(thread) = reader.filter(|thread| *thread != own_thread() && is_alive(*thread)) else {
            return false;
        };
        let left = ChannelReader::TIMEOUT.saturating_sub(outside::since(begun));
        self.state.wait_for(left, |state| state.waits) && is_alive(thread)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, mpsc};
    use std::thread;
    use std::time::Instant;

    use super::*;

    #[test]
    fn waiting_ends_with_the_last_acknowledgement() {
        let unacknowledged = Arc::new(UnacknowledgedEvents::default());
        unacknowledged.wait(Call::rdma_destroy_id, 1);
        [9, 4, 4].into_iter().for_each(|event| unacknowledged.fetched(event));
        assert_eq!(
            unacknowledged.left.look(named),
            "2 of RDMA_CM_EVENT_CONNECT_REQUEST, RDMA_CM_EVENT_ESTABLISHED"
        );
        let (done, is_done) = mpsc::channel();
        let waiter = thread::spawn({
            let unacknowledged = Arc::clone(&unacknowledged);
            move || {
                unacknowledged.wait(Call::rdma_destroy_id, 1);
                done.send(unacknowledged.left.look(|left| left.iter().sum::<u32>())).unwrap();
            }
        });
        unacknowledged.acknowledged(4);
        unacknowledged.acknowledged(9);
        // The waiter cannot have finished: one event is not acknowledged.
        assert!(is_done.try_recv().is_err());
        unacknowledged.acknowledged(4);
        assert_eq!(is_done.recv().unwrap(), 0);
        waiter.join().unwrap();
        unacknowledged.acknowledged(4);
        unacknowledged.fetched(u32::MAX);
        unacknowledged.wait(Call::rdma_destroy_id, 1);
    }

    #[test]
    fn a_reader_stays_while_it_waits_and_lives() {
        let reader = Arc::new(ChannelReader::default());
        assert!(!reader.still_waits());
        reader.is_at(true);
        assert!(!reader.still_waits(), "one that destroys its channel does not wait in it");
        let (end, ended) = mpsc::channel::<()>();
        let (waits, is_waiting) = mpsc::channel();
        let other = thread::spawn({
            let reader = Arc::clone(&reader);
            move || {
                reader.is_at(true);
                waits.send(()).unwrap();
                let _ = ended.recv();
            }
        });
        is_waiting.recv().unwrap();
        assert!(reader.still_waits());
        drop(end);
        other.join().unwrap();
        // After the join its memory is free; the kernel removes the thread a moment later.
        let begun = Instant::now();
        while reader.still_waits() {
            assert!(begun.elapsed() < Duration::from_secs(10), "it has ended");
        }
    }
}
