//! Faults that are known, as numbers that only become smaller.

/// Files of a crate that stand in circles.
pub(super) const IN_CIRCLES: &[(&str, usize)] = &[];
/// Imports from a room above.
pub(super) const UPWARD: usize = 0;
/// Files that stand in no room.
pub(super) const WITHOUT_ROOM: usize = 0;
/// Lines of Rust beyond the width.
pub(super) const LONG_LINES: usize = 28;
/// Lines with a word that names no one: a program, process, user or reader.
pub(super) const UNNAMED: usize = 16;
/// Functions that do not fit a screen.
pub(super) const LONG_FUNCTIONS: usize = 1;
/// Modules with a folder beside their file.
pub(super) const FILES_BESIDE_FOLDERS: usize = 0;
/// Files of tests with names of another style.
pub(super) const TESTS_OTHERWISE: usize = 0;
