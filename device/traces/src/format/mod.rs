//! The form of a trace's file: a [`TraceHeader`] and then records, each with the time that passed since the
//! one before it. What a record holds stands in one list ([`Record`]), from which both writing ([`Encoder`])
//! and reading ([`TraceReader`]) follow. A damaged file does no harm.

mod decode;
mod encode;
mod fault_what;
mod field;
mod header;
mod reader;
mod record;
#[cfg(test)]
mod tests;

pub use encode::{Encoder, SECTION};
pub use fault_what::FaultWhat;
pub use field::{Out, TEXT_BYTES};
pub use header::{CHANGING_AT, HeaderError, TraceHeader, VERSION};
pub use reader::{Item, ReadError, TraceReader};
pub use record::Record;
