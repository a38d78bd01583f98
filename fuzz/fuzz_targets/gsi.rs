//! Any bytes as packets for queue pair 1 of a device that listens and connects: nothing panics, tables stay
//! within their limits, and when the program has gone, time removes everything.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../bodies/gsi.rs"]
mod gsi;
#[path = "../bodies/scene.rs"]
mod scene;

fuzz_target!(|bytes: &[u8]| {
    let _ = gsi::survive(bytes);
});
