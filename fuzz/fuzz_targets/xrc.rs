//! Any bytes as packets for an XRC target and as answers to an XRC initiator: nothing panics, and a request
//! that names no SRQ of the domain reaches no memory.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../bodies/scene.rs"]
mod scene;
#[path = "../bodies/xrc.rs"]
mod xrc;

fuzz_target!(|bytes: &[u8]| {
    let _ = xrc::survive(bytes);
});
