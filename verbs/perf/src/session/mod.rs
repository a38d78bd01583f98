//! The measuring end.

mod address;
mod checked;
mod conversation;
mod one_host;
mod plain_udp;
mod run;
mod yardstick;

pub use run::{MessageTimes, Session, SessionOptions};
