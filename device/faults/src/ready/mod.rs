//! Fault plans that ship with pumice, each named after what it imitates.
//!
//! The first line of each text is a comment that says what the plan imitates.

/// A fault plan that ships with pumice.
#[derive(Debug, Clone, Copy)]
pub struct ReadyPlan {
    /// The name of the plan for `--faults`.
    pub name: &'static str,
    /// The plan, as TOML.
    pub text: &'static str,
}

impl ReadyPlan {
    /// Returns the plan of this name.
    pub fn named(name: &str) -> Option<&'static ReadyPlan> {
        READY.iter().find(|plan| plan.name == name)
    }

    /// Returns what the plan imitates: the comment at its beginning, in one line.
    pub fn imitates(&self) -> String {
        let lines = self.text.lines().map_while(|line| line.strip_prefix('#'));
        lines.map(str::trim).collect::<Vec<_>>().join(" ")
    }
}

macro_rules! ready {
    ($($name:literal)+) => {
        /// All plans that ship with pumice.
        pub const READY: &[ReadyPlan] =
            &[$(ReadyPlan { name: $name, text: include_str!(concat!($name, ".toml")) }),+];
    };
}

ready! {
    "flaky-cable"
    "several-paths"
    "incast"
    "lost-answers"
    "slow-receiver"
    "switch-restart"
    "silent-corruption"
    "lost-handshake"
    "duplicate-handshake"
    "setup-fails-once"
    "post-failures"
    "failing-completions"
    "busy-adapter"
    "link-flap"
    "gid-moves-after-flap"
    "dying-adapter"
    "peer-vanishes"
    "silent-host-once"
    "stale-gid-once"
    "stale-key"
    "no-peer-memory"
    "out-of-objects"
    "second-region-fails"
    "polling-fails"
    "posting-stops"
    "slow-posts"
    "event-burst"
    "lost-plane"
    "lossy-plane"
    "lost-sacks"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FaultPlan;

    #[test]
    fn every_ready_plan_is_right_and_says_what_it_imitates() {
        for plan in READY {
            let read =
                FaultPlan::parse(plan.text, 1).unwrap_or_else(|error| panic!("{}: {error}", plan.name));
            assert!(!read.rules().is_empty(), "{}", plan.name);
            assert!(plan.imitates().ends_with('.'), "{}: {}", plan.name, plan.imitates());
            assert_eq!(ReadyPlan::named(plan.name).map(|found| found.name), Some(plan.name));
        }
        assert!(ReadyPlan::named("none").is_none());
    }
}
