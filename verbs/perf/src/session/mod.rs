//! The measuring end.

mod address;
mod checked;
mod conversation;
mod plain_udp;
mod run;

pub use run::{Session, SessionOptions};
