//! Any bytes as the memory of a ring that another process writes, as what its consumer claims, and as a
//! message about it: nothing panics, no more is taken than a ring holds, and a message is the same when it is
//! written again.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../bodies/ring.rs"]
mod ring;

fuzz_target!(|bytes: &[u8]| {
    let _ = ring::survive(bytes);
});
