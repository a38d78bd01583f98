//! The present state of a process's queues and threads, and the conclusions about its waits.

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
