//! Any bytes as datagrams for a queue pair of SRD and for both ends of DC: nothing panics, no request and no
//! receive request ends twice, and no message is longer than its receive request.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../bodies/numbered.rs"]
mod numbered;
#[path = "../bodies/scene.rs"]
mod scene;

fuzz_target!(|bytes: &[u8]| {
    let _ = numbered::survive(bytes);
});
