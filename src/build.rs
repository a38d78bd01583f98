//! Tells the program what it was built from, for `pumice --version`.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

/// Says the commit where there is no git: packagers set it.
const VARIABLE: &str = "PUMICE_COMMIT";
/// Cargo puts the commit into this file of a package.
const OF_PACKAGE: &str = ".cargo_vcs_info.json";
/// Says that the linker is lld, and joins functions that have the same code: scripts of packages set it to
/// "all".
const ICF: &str = "PUMICE_ICF";
/// Digits of a commit that are shown.
const DIGITS: usize = 12;

fn main() {
    println!("cargo::rerun-if-changed=src/build.rs");
    println!("cargo::rerun-if-env-changed={VARIABLE}");
    println!("cargo::rerun-if-env-changed={ICF}");
    let mut features: Vec<String> = env::vars()
        .filter_map(|(name, _)| Some(name.strip_prefix("CARGO_FEATURE_")?.to_lowercase().replace('_', "-")))
        .filter(|feature| feature != "default")
        .collect();
    features.sort();
    let features = if features.is_empty() { "none".to_owned() } else { features.join(", ") };
    let of_cargo = |name: &str| env::var(name).unwrap_or_else(|_| "unknown".to_owned());
    println!("cargo::rustc-env=PUMICE_BUILT_COMMIT={}", commit().as_deref().unwrap_or("unknown"));
    println!("cargo::rustc-env=PUMICE_BUILT_FEATURES={features}");
    println!("cargo::rustc-env=PUMICE_BUILT_TARGET={}", of_cargo("TARGET"));
    println!("cargo::rustc-env=PUMICE_BUILT_PROFILE={}", of_cargo("PROFILE"));
    // The profile strips the libraries only: Cargo forgets it for a package that has an optimization of its
    // own.
    if of_cargo("PROFILE") == "release"
        && of_cargo("DEBUG") == "false"
        && of_cargo("CARGO_CFG_TARGET_OS") == "linux"
    {
        println!("cargo::rustc-link-arg-bins=-Wl,--strip-all");
    }
    if of_cargo("PROFILE") == "release" && env::var(ICF).is_ok_and(|folds| folds == "all") {
        println!("cargo::rustc-link-arg-bins=-Wl,--icf=all");
    }
}

/// The commit: as the environment says, as the package says, or as git says. A debug build does not ask git:
/// each commit would compile all tests again.
fn commit() -> Option<String> {
    let given = env::var(VARIABLE).ok().filter(|given| !given.is_empty());
    let found = given.or_else(of_package).or_else(|| {
        let is_release = env::var("PROFILE").is_ok_and(|profile| profile == "release");
        if is_release { of_git() } else { None }
    })?;
    let short: String = found.trim().chars().take(DIGITS).collect();
    short.chars().all(|c| c.is_ascii_hexdigit()).then_some(short)
}

fn of_package() -> Option<String> {
    println!("cargo::rerun-if-changed=Cargo.toml");
    let text = fs::read_to_string(OF_PACKAGE).ok()?;
    let (_, rest) = text.split_once("\"sha1\"")?;
    rest.split('"').nth(1).map(str::to_owned)
}

fn of_git() -> Option<String> {
    // A folder, or a file of a work tree. Without it git would find a repository around this one.
    if !Path::new(".git").exists() {
        return None;
    }
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    // Every commit and every checkout adds a line to this file.
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]).filter(|log| Path::new(log).exists()) {
        println!("cargo::rerun-if-changed={log}");
    }
    git(&["rev-parse", "HEAD"])
}
