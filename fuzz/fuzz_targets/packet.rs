//! Any bytes as a UDP payload and as a captured frame: nothing panics, and what was parsed survives being
//! emitted and parsed again.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../bodies/packet.rs"]
mod packet;

fuzz_target!(|bytes: &[u8]| {
    let _ = packet::survive(bytes);
});
