//! The measuring end.

mod checked;
mod run;

pub use run::{MessageTimes, Session, SessionOptions};
