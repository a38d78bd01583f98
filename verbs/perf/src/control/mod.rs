//! The control connection between the two ends of a measurement, out of band.

mod connection;
mod message;

pub(crate) use connection::{Control, unexpected};
pub(crate) use message::{ClientRequest, Contents, ReceiveTotals, Reply, Round, VERSION};
