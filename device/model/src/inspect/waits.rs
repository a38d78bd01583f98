//! The waits of a process's threads, the state of its queues, and the conclusions about them.

use std::net::IpAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The present state of a completion queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CqSnapshot {
    /// The number of the queue in the process.
    pub number: u32,
    /// The ID of its channel; 0: it has none.
    pub channel: u64,
    /// Number of completions that were not polled.
    pub filled: usize,
    /// The arming of the queue.
    pub armed: CqArming,
    /// Number of events that the program has not read from its channel.
    pub unread: usize,
}

/// The arming of a completion queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CqArming {
    /// No completion makes an event.
    No,
    /// Solicited completions and failures make an event.
    ForSolicited,
    /// The next completion makes an event.
    ForAll,
}

/// The activity of a waiting thread: what it polls, or sleeps in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThreadActivity {
    /// The thread polls the completion queue of this number.
    Polls(u32),
    /// The thread sleeps until the channel has an event.
    SleepsOn(u64),
    /// The thread sleeps until an event of a connection comes.
    SleepsForConnections,
    /// The thread waits in a call until the program has acknowledged events.
    Acknowledges,
}

/// A thread that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiter {
    /// The activity of the thread.
    pub doing: ThreadActivity,
    /// The system call in which it sleeps, as in "epoll_wait"; `None`: it is in a verbs call.
    pub within: Option<String>,
    /// The return addresses of the program's frames, innermost first.
    pub stack: Vec<u64>,
}

/// The object of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum WaitTarget {
    /// A send request of the queue pair of this number.
    Request(u32),
    /// Completions of the completion queue of this number.
    Completions(u32),
    /// An answer to the connection request with this identifier.
    Answer(u32),
    /// A connection that the peer has rejected.
    Rejected(u32),
    /// Other processes, by the queue pair of this number; 0 if it is about none.
    Others(u32),
}

/// A wait that cannot end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StalledWait {
    /// The object of the wait.
    pub about: WaitTarget,
    /// A sentence with the waiting thread and the reason.
    pub sentence: String,
    /// The return addresses of the waiting thread; empty if none was found.
    pub stack: Vec<u64>,
    /// True if the thread sleeps for an event of completions that are already in their queue.
    pub is_asleep: bool,
}

impl StalledWait {
    /// Reports whether the wait is about a connection that is not established.
    pub const fn is_of_connection(&self) -> bool {
        matches!(self.about, WaitTarget::Answer(_) | WaitTarget::Rejected(_))
    }
}

/// Most threads, listeners and connection requests in an answer, of each kind.
pub const MAX_WAITS: usize = 16;
/// Most frames of a thread, and most sentences, in an answer.
const MAX_LINES: usize = 8;
/// The longest frame, and the longest sentence, in characters.
const MAX_LINE: usize = 250;

/// The activity of a thread of the program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ThreadActivityView {
    /// The thread polls these completion queues again and again.
    Polls {
        /// The numbers of the queues in the process.
        cqs: Vec<u32>,
    },
    /// The thread sleeps until one of these completion queues makes an event.
    SleepsOn {
        /// The numbers of the queues in the process.
        cqs: Vec<u32>,
    },
    /// The thread sleeps until an event of a connection comes.
    SleepsForConnections {
        /// True if no identifier uses the event channel that it reads.
        #[serde(default)]
        has_none: bool,
        /// In this case, the number of events that wait in channels of identifiers.
        #[serde(default)]
        elsewhere: u32,
    },
    /// The thread sleeps until an asynchronous event of the device comes.
    SleepsForDevice,
    /// The thread waits in a verbs call until the program has acknowledged events.
    Acknowledges {
        /// The call that it waits in.
        call: String,
        /// The call that acknowledges the events.
        by: String,
        /// Number of events that are left.
        events: u64,
    },
    /// The thread waits in this system call.
    Calls {
        /// The name of the call, as in "futex"; or its number.
        call: String,
        /// The thread that it waits for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        awaits: Option<AwaitedThread>,
    },
    /// The thread computes, or may not be examined.
    Runs,
}

/// A thread that another one waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum AwaitedThread {
    /// The thread holds a lock.
    Lock {
        /// The number of the thread.
        thread: u32,
    },
    /// The thread has not ended.
    End {
        /// The number of the thread.
        thread: u32,
    },
}

/// A thread of the program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadView {
    /// The number of the thread.
    pub thread: u32,
    /// The name of the thread.
    pub name: String,
    /// The activity of the thread.
    pub doing: ThreadActivityView,
    /// A system call by which it may wait for something else.
    pub also: Option<String>,
    /// Frames of the program, the innermost first; empty if they are not known.
    pub stack: Vec<String>,
}

/// A listener for connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListenView {
    /// The address; `None`: all addresses of the process.
    pub address: Option<IpAddr>,
    /// The port.
    pub port: u16,
    /// Number of connection requests that the program has not read.
    pub unread: u32,
}

/// A connection request that has no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectView {
    /// The destination address.
    pub to: IpAddr,
    /// The destination port.
    pub port: u16,
    /// Number of times that the request was sent.
    pub requests: u32,
    /// Time without an answer, in ms.
    pub for_ms: u64,
}

/// A function that returns the known waits of a device. Its argument is whether another process asks for a
/// new examination of the threads. It is called under the engine's lock.
pub type WaitReporter = Arc<dyn Fn(bool) -> Option<WaitsView> + Send + Sync>;

/// The waits of a process, as far as it knows them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitsView {
    /// Number of examinations of the threads so far: a process that asks for one waits until the number
    /// grows.
    pub looks: u64,
    /// The threads of the program.
    pub threads: Vec<ThreadView>,
    /// Number of threads that are not listed.
    pub threads_left_out: u32,
    /// Connection requests without an answer.
    pub connects: Vec<ConnectView>,
    /// Sentences about waits that cannot end, and the reason, as the process itself knows it.
    pub vain: Vec<String>,
}

impl WaitsView {
    /// Cuts the lists so that they fit in a page.
    #[must_use]
    pub fn clipped(mut self) -> WaitsView {
        let left_out = self.threads.len().saturating_sub(MAX_WAITS);
        self.threads_left_out = self.threads_left_out.saturating_add(left_out as u32);
        self.threads.truncate(MAX_WAITS);
        self.connects.truncate(MAX_WAITS);
        for thread in &mut self.threads {
            clip(&mut thread.stack);
            thread.name = short(&thread.name);
            if let ThreadActivityView::Polls { cqs } | ThreadActivityView::SleepsOn { cqs } =
                &mut thread.doing
            {
                cqs.truncate(MAX_WAITS);
            }
        }
        clip(&mut self.vain);
        self
    }

    /// Reports whether no thread can continue by itself: each waits for completions, for connections, or for
    /// another thread.
    pub fn is_closed(&self) -> bool {
        self.threads_left_out == 0
            && !self.threads.is_empty()
            && self.threads.iter().all(|thread| thread.also.is_none() && thread.doing.is_closed())
    }
}

impl ThreadActivityView {
    fn is_closed(&self) -> bool {
        match self {
            ThreadActivityView::Polls { .. }
            | ThreadActivityView::SleepsOn { .. }
            | ThreadActivityView::SleepsForConnections { .. }
            | ThreadActivityView::SleepsForDevice
            | ThreadActivityView::Acknowledges { .. } => true,
            ThreadActivityView::Calls { call, .. } => matches!(call.as_str(), "futex" | "pause"),
            ThreadActivityView::Runs => false,
        }
    }
}

fn clip(lines: &mut Vec<String>) {
    lines.truncate(MAX_LINES);
    lines.iter_mut().for_each(|line| *line = short(line));
}

/// Returns as much of a text as takes `MAX_LINE` bytes in JSON.
fn short(text: &str) -> String {
    let mut room = MAX_LINE;
    let fits = |c: &char| {
        let bytes = match c {
            '"' | '\\' => 2,
            c if c.is_control() => 6,
            c => c.len_utf8(),
        };
        let left = room.checked_sub(bytes);
        room = left.unwrap_or(0);
        left.is_some()
    };
    text.chars().take_while(fits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_is_short_enough_for_a_page_whatever_the_program_does() {
        let thread = ThreadView {
            thread: u32::MAX,
            name: "\u{1}".repeat(1000),
            doing: ThreadActivityView::Polls { cqs: vec![u32::MAX; 1000] },
            also: None,
            stack: vec!["\"".repeat(1000); 100],
        };
        let view =
            WaitsView { threads: vec![thread; 40], vain: vec!["x".repeat(999); 99], ..WaitsView::default() };
        let view = view.clipped();
        assert_eq!((view.threads.len(), view.threads_left_out), (MAX_WAITS, 24));
        assert!(serde_json::to_vec(&view).unwrap().len() < super::super::MAX_PAGE_BYTES);
        assert!(!view.is_closed(), "of some threads nothing is known");
    }

    #[test]
    fn threads_that_may_go_on_by_themselves_are_told_apart() {
        let of = |doing| WaitsView {
            threads: vec![ThreadView {
                thread: 1,
                name: String::new(),
                doing,
                also: None,
                stack: Vec::new(),
            }],
            ..WaitsView::default()
        };
        assert!(of(ThreadActivityView::Polls { cqs: vec![1] }).is_closed());
        let call = |name: &str| ThreadActivityView::Calls { call: name.to_owned(), awaits: None };
        assert!(of(call("futex")).is_closed() && of(ThreadActivityView::SleepsForDevice).is_closed());
        for other in [ThreadActivityView::Runs, call("read")] {
            assert!(!of(other).is_closed());
        }
    }
}
