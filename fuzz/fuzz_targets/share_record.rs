//! Any bytes as the registry of the processes that share a port: nothing panics, and what is read is the same
//! after it was written and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../bodies/share_record.rs"]
mod share_record;

fuzz_target!(|bytes: &[u8]| {
    let _ = share_record::survive(bytes);
});
