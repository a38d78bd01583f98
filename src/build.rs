//! Sets the commit that `pumice --version` shows.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

/// Environment variable with the commit, which packagers set where there is no git.
const VARIABLE: &str = "PUMICE_COMMIT";
/// File of a package into which Cargo writes the commit.
const OF_PACKAGE: &str = ".cargo_vcs_info.json";
/// Environment variable that says that the linker is lld and may merge functions with identical code; scripts
/// of packages set it to "all".
const ICF: &str = "PUMICE_ICF";
/// Number of digits of a commit that are shown.
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
    // The profile strips only the libraries: Cargo drops `strip` for a package with its own optimization
    // level.
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

/// Returns the commit from the environment, from the package, or from git. A debug build does not ask git,
/// because each commit would then compile all tests again.
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
    // `.git` is a folder, or a file in a worktree. Without it, git would find a repository that encloses this
    // one.
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
