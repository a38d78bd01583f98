//! Any bytes as packets from the peer of RC and UC queue pairs that receive: nothing panics, no receive
//! completes twice, and nothing is written behind the memory that is open.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../bodies/engine.rs"]
mod engine;
#[path = "../bodies/scene.rs"]
mod scene;

fuzz_target!(|bytes: &[u8]| {
    let _ = engine::survive(bytes);
});
