//! A port that leads nowhere: a placeholder for one that is being wrapped.

use std::io;
use std::net::IpAddr;
use std::os::fd::RawFd;

use crate::port::batch::{GsoBatch, ReceivedBatch, TransmitError};
use crate::port::limits::{PacketCost, Peer, PortLimits};
use crate::port::traits::Port;

/// A port that sends nothing and receives nothing.
#[derive(Debug)]
pub struct NullPort;

impl Port for NullPort {
    fn transmit(&mut self, _now_ns: u64, _batch: &GsoBatch<'_>) -> Result<(), TransmitError> {
        Err(TransmitError::Unreachable)
    }

    fn receive(&mut self, _now_ns: u64, _handler: &mut dyn FnMut(&ReceivedBatch<'_>)) -> bool {
        false
    }

    fn limits(&self, _peer: Peer) -> PortLimits {
        let packet_cost = PacketCost::UDP_SOCKET;
        PortLimits {
            max_segments: 1,
            max_batch_bytes: 0,
            receive_buffer_bytes: 0,
            packet_cost,
            needs_icrc: true,
            waits_for_room: false,
        }
    }

    fn descriptors(&self) -> Vec<RawFd> {
        Vec::new()
    }

    fn join(&mut self, _group: IpAddr) -> io::Result<()> {
        Err(io::ErrorKind::NotConnected.into())
    }

    fn leave(&mut self, _group: IpAddr) -> io::Result<()> {
        Err(io::ErrorKind::NotConnected.into())
    }
}
