//! Faults that are known, as numbers that only become smaller.

/// Files of a crate that stand in circles.
pub(super) const IN_CIRCLES: &[(&str, usize)] =
    &[("", 16), ("transport", 10), ("device", 42), ("verbs", 14), ("verbs/capi", 22)];
/// Imports from a room above.
pub(super) const UPWARD: usize = 60;
/// Files that stand in no room.
pub(super) const WITHOUT_ROOM: usize = 130;
/// Lines of Rust beyond the width.
pub(super) const LONG_LINES: usize = 680;
/// Functions that do not fit a screen.
pub(super) const LONG_FUNCTIONS: usize = 8;
/// Modules with a folder beside their file.
pub(super) const FILES_BESIDE_FOLDERS: usize = 3;
/// Files of tests with names of another style.
pub(super) const TESTS_OTHERWISE: usize = 4;
