//! Any bytes as a target of a shared XRC domain: nothing panics, and what is read is the same after it was
//! written and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../bodies/domain_record.rs"]
mod domain_record;

fuzz_target!(|bytes: &[u8]| {
    let _ = domain_record::survive(bytes);
});
