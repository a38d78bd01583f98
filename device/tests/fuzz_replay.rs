//! The corpora of the fuzz targets that this floor has, and mutants of them.

use std::path::Path;

#[path = "../../fuzz/bodies/completer.rs"]
mod completer;
#[path = "../../fuzz/bodies/datagrams.rs"]
mod datagrams;
#[path = "../../fuzz/bodies/domain_record.rs"]
mod domain_record;
#[path = "../../fuzz/bodies/engine.rs"]
mod engine;
#[path = "../../fuzz/bodies/gsi.rs"]
mod gsi;
#[path = "../../fuzz/bodies/numbered.rs"]
mod numbered;
#[path = "../../fuzz/bodies/packet.rs"]
mod packet;
#[path = "../../fuzz/bodies/profile.rs"]
mod profile;
#[path = "../../fuzz/replay.rs"]
mod replay;
#[path = "../../fuzz/bodies/ring.rs"]
mod ring;
#[path = "../../fuzz/bodies/scene.rs"]
mod scene;
#[path = "../../fuzz/bodies/share_record.rs"]
mod share_record;
#[path = "../../fuzz/bodies/trace.rs"]
mod trace;
#[path = "../../fuzz/bodies/xrc.rs"]
mod xrc;

fn replay(target: &str, mutants: u64, survive: fn(&[u8]) -> usize) {
    let fuzz = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz"));
    replay::replay(fuzz, target, mutants, survive);
}

#[test]
fn packets() {
    replay("packet", 200_000, packet::survive);
}

#[test]
fn requests_for_rc_and_uc() {
    replay("engine", 4_000, engine::survive);
}

#[test]
fn answers_to_requests() {
    replay("completer", 4_000, completer::survive);
}

#[test]
fn datagrams_and_groups() {
    replay("datagrams", 4_000, datagrams::survive);
}

#[test]
fn targets_and_initiators_of_xrc() {
    replay("xrc", 4_000, xrc::survive);
}

#[test]
fn srd_and_both_ends_of_dc() {
    replay("numbered", 4_000, numbered::survive);
}

#[test]
fn messages_for_queue_pair_1() {
    replay("gsi", 1_000, gsi::survive);
}

#[test]
fn rings() {
    replay("ring", 100_000, ring::survive);
}

#[test]
fn registries_of_shared_ports() {
    replay("share_record", 100_000, share_record::survive);
}

#[test]
fn targets_of_shared_domains() {
    replay("domain_record", 50_000, domain_record::survive);
}

#[test]
fn device_profiles() {
    replay("profile", 5_000, profile::survive);
}

#[test]
fn traces() {
    replay("trace", 20_000, trace::survive);
}
