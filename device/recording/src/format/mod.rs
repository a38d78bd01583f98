//! The file format of a trace: a [`TraceHeader`], then records, each with the time since the one before it.
//! One list ([`Record`]) defines all records; writing ([`Encoder`]) and reading ([`TraceReader`]) are
//! generated from it. A damaged file gives an error, never a panic.

mod encode;
mod field;
mod header;
mod reader;
mod record;
#[cfg(test)]
mod tests;

pub use encode::{Encoder, SECTION};
pub use field::{ByteSink, TEXT_BYTES};
pub use header::{CHANGING_AT, HeaderError, TraceHeader, TracedFaultAction, VERSION};
pub use reader::{Item, ReadError, TraceReader};
pub use record::Record;
