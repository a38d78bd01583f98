//! The output of `pumice --version`. The build script sets the variables.

/// Output of `pumice -V`: one line.
pub(crate) const SHORT: &str =
    concat!(env!("CARGO_PKG_VERSION"), " (commit ", env!("PUMICE_BUILT_COMMIT"), ")");

/// Output of `pumice --version`: the version, and what the program was built from.
pub(crate) const LONG: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    "\ncommit:   ",
    env!("PUMICE_BUILT_COMMIT"),
    "\nfeatures: ",
    env!("PUMICE_BUILT_FEATURES"),
    "\ntarget:   ",
    env!("PUMICE_BUILT_TARGET"),
    "\nprofile:  ",
    env!("PUMICE_BUILT_PROFILE"),
);
