//! Any bytes as what the peer of a stream rsocket says, and what the program does in between: nothing panics,
//! what is sent stays within the places that the peer gave, and what can be read within the own ring.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[allow(dead_code, unused_imports)]
#[path = "../../verbs/capi/src/rsocket/protocol/mod.rs"]
mod protocol;
#[path = "../bodies/rsocket.rs"]
mod rsocket;

fuzz_target!(|bytes: &[u8]| {
    let _ = rsocket::survive(bytes);
});
