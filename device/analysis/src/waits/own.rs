//! Waits whose reason is in the process itself: something that it has done, or not done.

use pumice_model::inspect::{
    AwaitedThread, InspectedObjects, ProcessWait, SrqView, ThreadActivityView, ThreadView, WaitReason,
    WaitsView,
};

use super::words::counted;

/// Reason why requests of a queue pair in SQD wait.
pub(super) const DRAINED: &str =
    "the queue pair is in SQD, where no request begins: ibv_modify_qp to RTS lets them go on";

fn wait(from: usize, why: WaitReason, words: String) -> ProcessWait {
    ProcessWait { from, to: None, why, words, qpn: None, is_of_message: true }
}

/// Returns the wait of a thread that waits for no completion.
pub(super) fn of_thread(from: usize, objects: &InspectedObjects, thread: &ThreadView) -> Vec<ProcessWait> {
    let number = thread.thread;
    let one = match &thread.doing {
        ThreadActivityView::Acknowledges { call, by, events } => {
            let left = counted(*events, "event");
            let words = format!(
                "waits in {call} (thread {number}) until its program has called {by} for {left} that it \
                 has got"
            );
            Some(wait(from, WaitReason::Unacknowledged, words))
        }
        ThreadActivityView::SleepsForConnections { has_none: true, elsewhere } => {
            let elsewhere = match elsewhere {
                0 => String::new(),
                count => format!(
                    "; {} in the channel of another identifier: read that one, or call rdma_migrate_id",
                    if *count == 1 { "1 event waits".to_owned() } else { format!("{count} events wait") }
                ),
            };
            let words = format!(
                "sleeps in rdma_get_cm_event (thread {number}) on an event channel that no identifier \
                 uses{elsewhere}"
            );
            // A listener of another channel wakes no thread, if there is no other one.
            let is_closed = objects.waits.as_ref().is_some_and(WaitsView::is_closed);
            Some(ProcessWait { is_of_message: !is_closed, ..wait(from, WaitReason::Nothing, words) })
        }
        ThreadActivityView::SleepsForDevice => unarmed_limit(objects).map(|queue| {
            let words = format!(
                "sleeps in ibv_get_async_event (thread {number}), and shared receive queue {queue} is empty, \
                 and its limit is not armed: IBV_EVENT_SRQ_LIMIT_REACHED comes once for each ibv_modify_srq \
                 with IBV_SRQ_LIMIT"
            );
            wait(from, WaitReason::Nothing, words)
        }),
        _ => None,
    };
    one.into_iter().collect()
}

/// Returns a shared receive queue that had no receive for a message, and whose limit raises no event.
fn unarmed_limit(objects: &InspectedObjects) -> Option<u32> {
    let refused = |number: u32| objects.qps.iter().any(|qp| qp.srq == Some(number) && qp.rnr_naks_sent > 0);
    let empty = |srq: &&SrqView| srq.posted == 0 && srq.limit == 0 && refused(srq.number);
    objects.srqs.iter().find(empty).map(|srq| srq.number)
}

/// Returns the wait of a process of which all threads sleep, one for events of the device, and which has
/// brought a queue pair to ERR of which no event comes.
pub(super) fn of_ended_queue_pair(from: usize, objects: &InspectedObjects) -> Option<ProcessWait> {
    let view = objects.waits.as_ref().filter(|view| WaitsView::is_closed(view))?;
    let sleeper = view.threads.iter().find(|thread| thread.doing == ThreadActivityView::SleepsForDevice)?;
    // Otherwise the queue pair has failed, which is reported in another way.
    let is_meant = |why: Option<&str>| why.is_none_or(|why| why.contains("by modify_qp"));
    let is_it = |state: &str, srq: Option<u32>| state == "ERR" && srq.is_none();
    let ended =
        objects.qps.iter().find(|qp| is_it(&qp.state, qp.srq) && is_meant(qp.last_error.as_deref()))?;
    let words = format!(
        "sleeps in ibv_get_async_event (thread {}), and QP {:#08x} is in ERR and has no shared receive \
         queue: IBV_EVENT_QP_LAST_WQE_REACHED comes of queue pairs with one",
        sleeper.thread, ended.qpn
    );
    Some(wait(from, WaitReason::Nothing, words))
}

/// Returns the wait for a completion queue that has failed.
pub(super) fn of_failed_queue(
    from: usize,
    objects: &InspectedObjects,
    cqs: &[u32],
    does: &str,
) -> Option<ProcessWait> {
    let failed = objects.cqs.iter().find(|cq| cq.failed && cqs.contains(&cq.number))?;
    let words = format!(
        "{does} {} of {}, which overran or failed: ibv_poll_cq returns an error, and no \
         completion comes any more",
        objects.cq_name(failed.number),
        if failed.depth == 1 { "1 entry".to_owned() } else { format!("{} entries", failed.depth) }
    );
    Some(ProcessWait { is_of_message: false, ..wait(from, WaitReason::Halted, words) })
}

/// Reports whether a shared receive queue of XRC has receive requests that complete in one of these queues.
pub(super) fn has_receives_of_xrc(objects: &InspectedObjects, cqs: &[u32]) -> bool {
    // A process of an older version does not report where they complete.
    let completes = |cq: Option<u32>| cq.is_none_or(|cq| cqs.contains(&cq));
    objects.srqs.iter().any(|srq| srq.xrc && srq.posted > 0 && completes(srq.cq))
}

/// Returns the end of the sentence about a thread that holds a lock for which another one waits.
pub(super) fn held_up(objects: &InspectedObjects, holder: u32) -> Option<String> {
    let threads = objects.waits.iter().flat_map(|view| &view.threads);
    let lock = AwaitedThread::Lock { thread: holder };
    let waits = |one: &&ThreadView| match one.doing {
        ThreadActivityView::Calls { awaits, .. } => awaits == Some(lock),
        _ => false,
    };
    let held: Vec<u32> = threads.filter(waits).map(|thread| thread.thread).collect();
    let first = held.first()?;
    Some(format!("; thread {first} waits for a lock that thread {holder} holds meanwhile"))
}
