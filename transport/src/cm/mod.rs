//! Connection management: the IBTA's communication manager as a state machine without I/O.
//!
//! A [`Cm`] is one process's end of all conversations on queue pair 1. Calls of the consumer (listen,
//! connect, accept, …), MADs ([`Cm::handle_mad`]) and time ([`Cm::handle_timeout`]) go in; MADs to send
//! ([`Cm::poll_transmit`]), the next deadline ([`Cm::poll_timeout`]) and events ([`Cm::poll_event`]) come
//! out. After any call, drain them.
//!
//! On the wire it behaves as Linux does: the same messages, fields, timers and answers to duplicates. It does
//! more than Linux where a peer would otherwise wait for a timeout: a repeated REQ is answered with the REP
//! again at once; a REP for an id that does not exist is rejected; a connection that its consumer has
//! destroyed is still disconnected reliably; simultaneous DREQs are answered at once; and a peer may use a
//! queue pair again after the end of its connection. It trusts less than Linux where a message can be forged:
//! what a REQ says about an old connection is checked with its peer (`disconnect`), and only a message with
//! both communication ids ends a connection that is established. The ids cannot be guessed
//! ([`IdSource::scattered`]).
//!
//! **Ids.** A connection lives from `connect`, `resolve` or a request until [`Cm::destroy`]. The part that
//! the protocol needs after that (the answer to a DREQ, timewait) remains without the consumer, and produces
//! no more events.
//!
//! **Bounds.** Connections, listeners and requests waiting at a listener have limits; what exceeds them is
//! refused. A transmit queue that is not drained loses MADs, which the timers repeat. A burst of requests to
//! one address is sent in portions, each when the one before was answered or a short time has passed.

mod active;
mod connection;
mod disconnect;
mod error;
mod event;
mod ids;
mod listen;
mod listen_scope;
mod listeners;
mod machine;
mod pace;
mod params;
mod passive;
mod receive;
mod reject;
mod sidr;
mod table;

pub use connection::CmState;
pub use error::{CmError, IgnoredMad};
pub use event::{CmEvent, MadOut, UnansweredMessage};
pub use ids::IdSource;
pub use listen_scope::ListenScope;
pub use listeners::{BacklogOverflow, ListenParams, ListenerId, Served};
pub use machine::{Cm, CmConfig};
pub use params::{
    AcceptParams, CmPath, ConnectParams, MadRoute, QpParameters, RejectParams, ResolveParams, SidrReply,
    ack_timeout, time_code_ns,
};
