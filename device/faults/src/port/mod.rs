//! The port around a port that carries out the fates of packets.

pub mod damage;
pub mod fault;
