//! What the threads of a process wait for, as its watch over waits has seen it.

use std::net::IpAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Threads, listeners and requests for connections that are told at most, of each kind.
pub const MAX_WAITS: usize = 16;
/// Frames of a thread, and sentences, that are told at most.
const MAX_LINES: usize = 8;
/// The longest frame, and the longest sentence, in characters.
const MAX_LINE: usize = 250;

/// What a thread of the program does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum DoingView {
    /// It polls these completion queues again and again.
    Polls {
        /// Their numbers in the process.
        cqs: Vec<u32>,
    },
    /// It sleeps until one of these completion queues makes an event.
    SleepsOn {
        /// Their numbers in the process.
        cqs: Vec<u32>,
    },
    /// It sleeps until something happens to a connection.
    SleepsForConnections {
        /// No identifier uses the event channel that it reads.
        #[serde(default)]
        has_none: bool,
        /// If so, events that wait in channels of identifiers.
        #[serde(default)]
        elsewhere: u32,
    },
    /// It sleeps until something happens to the device: an asynchronous event.
    SleepsForDevice,
    /// It waits in a call of verbs until the program has acknowledged events.
    Acknowledges {
        /// The call that it waits in.
        call: String,
        /// The call that acknowledges them.
        by: String,
        /// How many are left.
        events: u64,
    },
    /// It waits in this system call.
    Calls {
        /// Its name, as in "futex"; or its number.
        call: String,
        /// The thread that it waits for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        awaits: Option<AwaitedThread>,
    },
    /// It computes, or may not be looked at.
    Runs,
}

/// A thread that another one waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum AwaitedThread {
    /// It holds a lock.
    Lock {
        /// Its number.
        thread: u32,
    },
    /// It has not ended.
    End {
        /// Its number.
        thread: u32,
    },
}

/// A thread of the program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadView {
    /// Its number.
    pub thread: u32,
    /// Its name.
    pub name: String,
    /// What it does.
    pub doing: DoingView,
    /// A system call by which it may wait for something else.
    pub also: Option<String>,
    /// Frames of the program, the innermost first; empty if they are not known.
    pub stack: Vec<String>,
}

/// A listener for connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListenView {
    /// Its address; none: all addresses of the process.
    pub address: Option<IpAddr>,
    /// Its port.
    pub port: u16,
    /// Requests for a connection that the program has not read.
    pub unread: u32,
}

/// A request for a connection that has no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectView {
    /// Where it is sent to.
    pub to: IpAddr,
    /// The port there.
    pub port: u16,
    /// How often it was sent.
    pub requests: u32,
    /// For how long there is no answer, in ms.
    pub for_ms: u64,
}

/// Tells what is known of the waits of a device. It is given whether another process asks for a new look at
/// the threads, and is called under the engine's lock.
pub type TellsWaits = Arc<dyn Fn(bool) -> Option<WaitsView> + Send + Sync>;

/// What a process knows of its waits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitsView {
    /// Looks at the threads so far: who asks for one waits until there is another.
    pub looks: u64,
    /// Threads of the program.
    pub threads: Vec<ThreadView>,
    /// Threads that are not listed.
    pub threads_left_out: u32,
    /// Requests for connections without an answer.
    pub connects: Vec<ConnectView>,
    /// What is waited for in vain, and the reason, as the process itself knows it.
    pub vain: Vec<String>,
}

impl WaitsView {
    /// The same, short enough for a page.
    #[must_use]
    pub fn clipped(mut self) -> WaitsView {
        let left_out = self.threads.len().saturating_sub(MAX_WAITS);
        self.threads_left_out = self.threads_left_out.saturating_add(left_out as u32);
        self.threads.truncate(MAX_WAITS);
        self.connects.truncate(MAX_WAITS);
        for thread in &mut self.threads {
            clip(&mut thread.stack);
            thread.name = short(&thread.name);
            if let DoingView::Polls { cqs } | DoingView::SleepsOn { cqs } = &mut thread.doing {
                cqs.truncate(MAX_WAITS);
            }
        }
        clip(&mut self.vain);
        self
    }

    /// Whether no thread can go on by itself: each waits for completions, for connections, or for another
    /// thread.
    pub fn is_closed(&self) -> bool {
        self.threads_left_out == 0
            && !self.threads.is_empty()
            && self.threads.iter().all(|thread| thread.also.is_none() && thread.doing.is_closed())
    }
}

impl DoingView {
    fn is_closed(&self) -> bool {
        match self {
            DoingView::Polls { .. }
            | DoingView::SleepsOn { .. }
            | DoingView::SleepsForConnections { .. }
            | DoingView::SleepsForDevice
            | DoingView::Acknowledges { .. } => true,
            DoingView::Calls { call, .. } => matches!(call.as_str(), "futex" | "pause"),
            DoingView::Runs => false,
        }
    }
}

fn clip(lines: &mut Vec<String>) {
    lines.truncate(MAX_LINES);
    lines.iter_mut().for_each(|line| *line = short(line));
}

/// As much of a text as takes `MAX_LINE` bytes in JSON.
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
            doing: DoingView::Polls { cqs: vec![u32::MAX; 1000] },
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
        assert!(of(DoingView::Polls { cqs: vec![1] }).is_closed());
        let call = |name: &str| DoingView::Calls { call: name.to_owned(), awaits: None };
        assert!(of(call("futex")).is_closed() && of(DoingView::SleepsForDevice).is_closed());
        for other in [DoingView::Runs, call("read")] {
            assert!(!of(other).is_closed());
        }
    }
}
