//! DCQCN: congestion control by rate, as on RoCEv2 adapters (Zhu et al., SIGCOMM 2015).
//!
//! A switch marks packets, the receiver answers marks with CNPs (`congestion`), and the sender of a queue
//! pair's packets, the *reaction point*, lowers its rate at a CNP and raises it again in stages. It has no
//! clock: time is an argument, and its timers are brought up to date at each event. The parameters have the
//! names under which ConnectX adapters expose them.

mod pacer;
mod parameters;
mod reaction_point;
#[cfg(test)]
mod tests;

pub(crate) use pacer::{Paced, Pacer};
pub use parameters::{Congestion, CongestionAlgorithm, DcqcnParameters, NotificationParameters};
pub use reaction_point::ReactionPoint;
