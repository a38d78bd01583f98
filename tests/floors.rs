//! The architecture as a test: which floor and which room may stand on which, who may use which package,
//! where `unsafe` may be, what a source file looks like, and how documents speak. ARCHITECTURE.md gives the
//! reasons.
//!
//! It needs no package, so that `rustc --edition 2024 --test tests/floors.rs` compiles it in a second.

#[path = "floors/circles.rs"]
mod circles;
#[path = "floors/citations.rs"]
mod citations;
#[path = "floors/counters.rs"]
mod counters;
#[path = "floors/counts.rs"]
#[expect(clippy::print_stdout, reason = "the counts are for people who ask for them")]
mod counts;
#[path = "floors/crates.rs"]
mod crates;
#[path = "floors/door.rs"]
mod door;
#[path = "floors/files.rs"]
mod files;
#[path = "floors/findings.rs"]
mod findings;
#[path = "floors/forks.rs"]
mod forks;
#[path = "floors/functions.rs"]
mod functions;
#[path = "floors/graph.rs"]
mod graph;
#[path = "floors/imports.rs"]
mod imports;
#[path = "floors/known.rs"]
mod known;
#[path = "floors/links.rs"]
mod links;
#[path = "floors/modules.rs"]
mod modules;
#[path = "floors/names.rs"]
mod names;
#[path = "floors/outside.rs"]
mod outside;
#[path = "floors/platforms.rs"]
mod platforms;
#[path = "floors/recipes.rs"]
mod recipes;
#[path = "floors/rooms.rs"]
mod rooms;
#[path = "floors/source.rs"]
mod source;
#[path = "floors/statements.rs"]
mod statements;
#[path = "floors/style.rs"]
mod style;
#[path = "floors/token.rs"]
mod token;
#[path = "floors/tree.rs"]
mod tree;
#[path = "floors/unsafety.rs"]
mod unsafety;
#[path = "floors/words.rs"]
mod words;

/// Fails with every fault on a line of its own.
fn assert_no(faults: Vec<String>) {
    assert!(faults.is_empty(), "\n  {}\n", faults.join("\n  "));
}

/// Fails if there are more faults than are known, which are to become fewer and never more.
fn assert_at_most(known: usize, faults: Vec<String>) {
    let count = faults.len();
    assert!(count <= known, "{count} faults, {known} are known:\n  {}\n", faults.join("\n  "));
}
