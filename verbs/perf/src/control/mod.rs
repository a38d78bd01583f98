//! How the two ends of a measurement agree, out of band.

mod connection;
mod message;

pub(crate) use connection::{Control, unexpected};
pub(crate) use message::{ClientRequest, Contents, Reply, Round, Served, VERSION};
