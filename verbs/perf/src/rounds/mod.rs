//! Activity of the two ends in a round: stream messages, exchange single ones, receive.

pub(crate) mod latency;
pub(crate) mod receiver;
pub(crate) mod sender;
