//! MRC: bytes against the fact sheet and a second program, one queue pair against literal packets, two
//! against each other through a bad network, and any bytes at all.

mod bottleneck;
mod counterpart;
mod device;
mod endpoint;
mod fuzz_replay;
#[path = "../../../fuzz/bodies/mrc.rs"]
mod fuzzed;
mod golden;
mod kit;
mod ladder_reports;
mod ladder_requester;
mod ladder_responder;
mod ladder_rules;
mod nscc;
mod packets;
mod pair;
#[path = "../../../fuzz/replay.rs"]
mod replay;
mod simulation;
