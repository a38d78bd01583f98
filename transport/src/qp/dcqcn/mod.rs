//! DCQCN: congestion control by rate, as RoCEv2 adapters have it (Zhu et al., SIGCOMM 2015).
//!
//! A switch marks packets, the receiver answers marks with CNPs (`congestion`), and the sender of a queue
//! pair's packets, the *reaction point*, lowers its rate at a CNP and raises it again in stages. It holds
//! no clock: time is an argument, and its timers are brought up to date whenever something happens. The
//! parameters have the names under which ConnectX adapters expose them.

mod pacer;
mod parameters;
mod reaction_point;
#[cfg(test)]
mod tests;

pub(crate) use pacer::{Paced, Pacer};
pub use parameters::{Congestion, CongestionAlgorithm, DcqcnParameters, NotificationParameters};
pub use reaction_point::ReactionPoint;
