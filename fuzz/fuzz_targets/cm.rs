//! Any MADs for a connection manager with listeners and connections, and any calls of its consumer in
//! between: nothing panics, tables stay within their limits, and after the consumer has gone, time removes
//! everything.
#![no_main]

use libfuzzer_sys::fuzz_target;

/// The conversation that the input is a script of.
#[path = "../../transport/tests/cm/script.rs"]
mod script;

fuzz_target!(|bytes: &[u8]| script::survive(bytes));
