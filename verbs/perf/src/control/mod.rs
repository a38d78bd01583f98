//! The control connection between the two ends of a measurement, out of band.

mod connection;

pub(crate) use connection::{
    ClientRequest, Contents, Control, ReceiveTotals, Reply, Round, VERSION, unexpected,
};
