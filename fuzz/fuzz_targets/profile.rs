//! Any bytes as a device profile: nothing panics, and a refusal is one sentence.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../bodies/profile.rs"]
mod profile;

fuzz_target!(|bytes: &[u8]| {
    let _ = profile::survive(bytes);
});
