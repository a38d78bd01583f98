//! Asserts of sizes and offsets, which the build makes of `layout.tsv`.

use super::*;

/// Size of the field that a projection points at.
const fn size_of_field<S, F>(_: fn(&S) -> *const F) -> usize {
    size_of::<F>()
}

include!(concat!(env!("OUT_DIR"), "/layout.rs"));
