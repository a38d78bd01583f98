//! Any bytes as packets for a queue pair of MRC and for an endpoint: nothing panics, each request ends once
//! and in order, each receive request is taken once, what waits to be sent is bounded, and time goes on.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../transport/tests/mrc/device.rs"]
mod device;
#[path = "../bodies/mrc.rs"]
mod mrc;

fuzz_target!(|bytes: &[u8]| {
    let _ = mrc::survive(bytes);
});
