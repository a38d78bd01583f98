//! Assertions of sizes and offsets, which the build generates from `layout.tsv`.

use super::*;

/// Returns the size of the field that a projection points at.
const fn size_of_field<S, F>(_: fn(&S) -> *const F) -> usize {
    size_of::<F>()
}

include!(concat!(env!("OUT_DIR"), "/layout.rs"));
