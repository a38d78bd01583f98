//! What is said when all threads wait for ever.

use std::fmt::Write as _;

use super::memory::Word;
use super::threads::{Doing, Threads};
use super::waits::WaitFor;

/// A line for each thread: what it waits for, and in which call.
pub(crate) fn who_waits_for_what(threads: &Threads) -> String {
    let mut text = String::new();
    for (id, thread) in &threads.threads {
        let program = threads.program(*id);
        let _ = write!(text, "  {program} ({}): ", thread.name);
        let _ = match &thread.doing {
            Doing::Waiting(call, wait) => writeln!(text, "{} waits for {}", call.name(), what(&wait.on)),
            Doing::InVfork(_) => writeln!(text, "vfork waits for its child"),
            _ => writeln!(text, "can go on"),
        };
    }
    text
}

fn what(on: &WaitFor) -> String {
    match on {
        WaitFor::Time => "time".to_owned(),
        WaitFor::Word(Word::Own { address, .. }, _) => format!("a wake of the word at {address:#x}"),
        WaitFor::Word(Word::Shared { file: (_, inode), offset }, _) => {
            format!("a wake of the shared word at {offset:#x} of inode {inode}")
        }
        WaitFor::Descriptors(interests) => {
            let all: Vec<String> = interests.iter().take(8).map(|one| one.descriptor.to_string()).collect();
            format!("descriptor {}", all.join(", "))
        }
        WaitFor::Child => "a child that ends".to_owned(),
        WaitFor::Lock => "the lock of a file".to_owned(),
        WaitFor::Signal => "a signal".to_owned(),
    }
}
