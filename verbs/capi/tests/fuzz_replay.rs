//! The corpus of the fuzz target `rsocket`, and mutants of it. The protocol is a value that needs nothing of
//! this crate, whose object cannot be linked into a program.

use std::path::Path;

#[allow(dead_code, unused_imports)]
#[path = "../src/rsocket/protocol/mod.rs"]
mod protocol;
#[path = "../../../fuzz/replay.rs"]
mod replay;
#[path = "../../../fuzz/bodies/rsocket.rs"]
mod rsocket;

#[test]
fn messages_of_the_peer_of_a_stream() {
    let fuzz = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz"));
    replay::replay(fuzz, "rsocket", 200_000, rsocket::survive);
}
