//! Messages: how they are cut into packets, in which order they complete, and with which result.

mod receive;
mod send;

pub(super) use receive::{Delivered, HeaderSlot, ReceiveOrder, check_packet};
pub(super) use send::{MrcSendQueue, Planned, PostedMessage};
