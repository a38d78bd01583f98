//! Any bytes as answers to requests of every kind: nothing panics, each request completes at most once and in
//! order, and an answer changes no memory but that which its request names.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../bodies/completer.rs"]
mod completer;
#[path = "../bodies/scene.rs"]
mod scene;

fuzz_target!(|bytes: &[u8]| {
    let _ = completer::survive(bytes);
});
