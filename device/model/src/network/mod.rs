//! What a network is made of: links with rates and queues, and topologies of switches.

pub mod link;
pub mod topology;
