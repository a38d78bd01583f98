//! Any bytes as the result of a search: nothing panics, refusals are one sentence, and what is read fits
//! itself.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[allow(dead_code, reason = "the command line uses the rest of this file")]
#[path = "../../src/world/result.rs"]
mod result;
#[allow(dead_code, reason = "the command line uses the rest of this file")]
#[path = "../../src/world/seeds.rs"]
mod seeds;
#[path = "../bodies/world_result.rs"]
mod world_result;

fuzz_target!(|bytes: &[u8]| {
    let _ = world_result::survive(bytes);
});
