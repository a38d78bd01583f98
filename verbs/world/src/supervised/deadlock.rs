//! The report when all threads wait for ever.

use std::fmt::Write as _;

use super::memory::FutexKey;
use super::threads::{Activity, EndlessWait, Threads};
use super::waits::{FifoEnd, WaitFor};

/// Returns a line for each thread: what it waits for, and in which call.
pub(crate) fn describe_waits(threads: &Threads) -> String {
    let mut text = String::new();
    for (id, thread) in &threads.threads {
        let program = threads.program(*id);
        let _ = write!(text, "  {program} ({}): ", thread.name);
        let _ = match &thread.activity {
            _ if thread.polls.endless == Some(EndlessWait::Work) => {
                writeln!(text, "a thread of pumice, which has nothing to do")
            }
            Activity::Waiting(call, wait) => match thread.polls.endless {
                Some(EndlessWait::CompletionEvent(descriptor)) => writeln!(
                    text,
                    "{} waits for a completion event of descriptor {descriptor} (ibv_get_cq_event)",
                    call.name()
                ),
                Some(EndlessWait::ConnectionEvent(descriptor)) => writeln!(
                    text,
                    "{} waits for an event of a connection from descriptor {descriptor} (rdma_get_cm_event)",
                    call.name()
                ),
                _ => writeln!(text, "{} waits for {}", call.name(), what(&wait.on)),
            },
            Activity::InVfork(_) => writeln!(text, "vfork waits for its child"),
            _ => writeln!(text, "can go on"),
        };
    }
    text
}

fn what(on: &WaitFor) -> String {
    match on {
        WaitFor::Time => "time".to_owned(),
        WaitFor::Futex(FutexKey::Private { address, .. }, _) => format!("a wake of the word at {address:#x}"),
        WaitFor::Futex(FutexKey::Shared { file: (_, inode), offset }, _) => {
            format!("a wake of the shared word at {offset:#x} of inode {inode}")
        }
        WaitFor::Descriptors(interests) => {
            let all: Vec<String> = interests.iter().take(8).map(|one| one.descriptor.to_string()).collect();
            format!("descriptor {}", all.join(", "))
        }
        WaitFor::Child => "a child that ends".to_owned(),
        WaitFor::Fifo(FifoEnd { writes: true, .. }, _) => "a reader of a FIFO".to_owned(),
        WaitFor::Fifo(FifoEnd { writes: false, .. }, _) => "a writer of a FIFO".to_owned(),
        WaitFor::Change(what) => (*what).to_owned(),
        WaitFor::Signal => "a signal".to_owned(),
    }
}
