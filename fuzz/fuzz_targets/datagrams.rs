//! Any bytes as datagrams for UD queue pairs, one of them in a multicast group: nothing panics, a datagram
//! fills one receive, says a length that fits it, and writes nothing behind it.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../bodies/datagrams.rs"]
mod datagrams;
#[path = "../bodies/scene.rs"]
mod scene;

fuzz_target!(|bytes: &[u8]| {
    let _ = datagrams::survive(bytes);
});
