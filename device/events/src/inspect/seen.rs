//! What is seen of a process, and what is said of it.

/// A completion queue, as it is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueNow {
    /// Its number in the process.
    pub number: u32,
    /// Names its channel; 0: it has none.
    pub channel: u64,
    /// Completions to be polled.
    pub filled: usize,
    /// How it is armed.
    pub armed: ArmedNow,
}

/// How a completion queue is armed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArmedNow {
    /// No completion makes an event.
    No,
    /// Solicited completions and failures do.
    ForSolicited,
    /// The next one does.
    ForAll,
}

/// What a thread of the program does again and again, or sleeps in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doing {
    /// It polls the completion queue of this number.
    Polls(u32),
    /// It sleeps until the channel has an event.
    SleepsOn(u64),
    /// It sleeps until something happens to a connection.
    SleepsForConnections,
    /// It waits in a call until the program has acknowledged events.
    Acknowledges,
}

/// A thread that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiter {
    /// What it does.
    pub doing: Doing,
    /// Return addresses of the program's frames, innermost first.
    pub stack: Vec<u64>,
}

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Awaited {
    /// A send request of the queue pair of this number.
    Request(u32),
    /// Completions of the completion queue of this number.
    Completions(u32),
    /// An answer to the request for the connection that has this identifier.
    Answer(u32),
    /// A connection that the peer has rejected.
    Rejected(u32),
    /// Other processes, by the queue pair of this number; 0 if it is about none.
    Others(u32),
}

/// Something that is waited for in vain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vain {
    /// What is waited for.
    pub about: Awaited,
    /// Who waits, and the reason.
    pub sentence: String,
    /// Return addresses of the thread that waits; empty if none was found.
    pub stack: Vec<u64>,
}

impl Vain {
    /// Whether it is about a connection that is not made.
    pub const fn is_of_connection(&self) -> bool {
        matches!(self.about, Awaited::Answer(_) | Awaited::Rejected(_))
    }
}
