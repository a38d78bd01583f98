//! Finds which part of the seeds this machine runs, from the engine that started it: CI systems and clusters
//! number the jobs of one kind, each in variables of its own.

use super::seeds::Shard;
use crate::outcome::CommandError;

/// Variable with the number of this job, from 0, for engines that have no variables of their own.
pub(crate) const INDEX: &str = "PUMICE_SHARD_INDEX";
/// Variable with the number of all jobs.
pub(crate) const COUNT: &str = "PUMICE_SHARD_COUNT";

/// Variable in which Kubernetes numbers the pods of an indexed job from 0. There is none for their number.
const KUBERNETES: &str = "JOB_COMPLETION_INDEX";
/// Variables of a task of a Slurm array: its number, the first one, the last one, the step between two, and
/// how many there are.
const SLURM: [&str; 5] = [
    "SLURM_ARRAY_TASK_ID",
    "SLURM_ARRAY_TASK_MIN",
    "SLURM_ARRAY_TASK_MAX",
    "SLURM_ARRAY_TASK_STEP",
    "SLURM_ARRAY_TASK_COUNT",
];
/// Variables of a job of `parallel` in GitLab: its number from 1, and how many there are. Without `parallel`
/// there is no number.
const GITLAB: [&str; 2] = ["CI_NODE_INDEX", "CI_NODE_TOTAL"];

/// A shard, and the variable it was taken from; `None` for an option or a default.
pub(crate) type NamedShard = (Shard, Option<&'static str>);

/// Returns the shard that was given, or that of the engine. The innermost engine counts: a job of GitLab may
/// start an array of Slurm.
///
/// # Errors
/// A variable is wrong, or one is missing beside another.
pub(crate) fn shard(
    given: Option<Shard>,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<NamedShard, CommandError> {
    if let Some(shard) = given {
        return Ok((shard, None));
    }
    // As everywhere in pumice, an empty variable counts as not set.
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    let number = |name: &'static str| -> Result<Option<u64>, CommandError> {
        let Some(value) = set(name) else { return Ok(None) };
        value.parse().map(Some).map_err(|_| refused(&format!("{name}={value} is no whole number from 0")))
    };
    let needed = |name: &'static str, beside: &str| {
        number(name)?.ok_or_else(|| refused(&format!("{beside} is set, and {name} is not")))
    };
    let from_zero = |name: &'static str| -> Result<NamedShard, CommandError> {
        let index = needed(name, COUNT)?;
        named(index.checked_add(1), needed(COUNT, name)?, name)
    };
    if set(INDEX).is_some() {
        return from_zero(INDEX);
    }
    if set(KUBERNETES).is_some() {
        return from_zero(KUBERNETES);
    }
    if set(COUNT).is_some() {
        return Err(refused(&format!("{COUNT} is set, and {INDEX} is not")));
    }
    let [id, min, max, step, count] = SLURM;
    if let Some(task) = number(id)? {
        let (first, last) = (needed(min, id)?, number(max)?);
        let (step, count) = (number(step)?.unwrap_or(1).max(1), needed(count, id)?);
        let index_of =
            |task: u64| task.checked_sub(first).filter(|gap| gap % step == 0).map(|gap| gap / step);
        // In an array such as 1,5,7, the place of this task is unknown.
        let is_even = last.is_none_or(|last| index_of(last).is_some_and(|index_of| index_of + 1 == count));
        return match index_of(task).filter(|_| is_even) {
            Some(index_of) => named(index_of.checked_add(1), count, id),
            None => Err(refused(&format!("{id}={task} is of an array with gaps"))),
        };
    }
    let [index, total] = GITLAB;
    match number(index)? {
        Some(number) => named(Some(number), needed(total, index)?, index),
        None => Ok((Shard::UNSHARDED, None)),
    }
}

fn named(number: Option<u64>, count: u64, name: &'static str) -> Result<NamedShard, CommandError> {
    let text = format!("{}/{count}", number.unwrap_or(u64::MAX));
    let shard = text.parse().map_err(|sentence: String| refused(&format!("{name}: {sentence}")))?;
    Ok((shard, Some(name)))
}

fn refused(what: &str) -> CommandError {
    CommandError::Usage(format!("{what}: correct it, or give --shard K/N (1/1 for all seeds)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names and values.
    type VariableSet<'a> = &'a [(&'a str, &'a str)];

    fn shard_of(set: VariableSet<'_>) -> Result<(String, Option<&'static str>), String> {
        let variable =
            |name: &str| set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        match shard(None, variable) {
            Ok((shard, name)) => Ok((shard.to_string(), name)),
            Err(error) => Err(error.to_string()),
        }
    }

    fn slurm<'a>(id: &'a str, min: &'a str, max: &'a str, count: &'a str) -> [(&'a str, &'a str); 4] {
        [(SLURM[0], id), (SLURM[1], min), (SLURM[2], max), (SLURM[4], count)]
    }

    #[test]
    fn each_engine_numbers_in_its_own_way() {
        let cases: [(VariableSet<'_>, &str, Option<&str>); 10] = [
            (&[], "1/1", None),
            (&[(INDEX, ""), (COUNT, "")], "1/1", None),
            (&[(INDEX, "0"), (COUNT, "4")], "1/4", Some(INDEX)),
            (
                &[(INDEX, "3"), (COUNT, "4"), ("CI_NODE_INDEX", "1"), ("CI_NODE_TOTAL", "9")],
                "4/4",
                Some(INDEX),
            ),
            (&[("CI_NODE_TOTAL", "1")], "1/1", None),
            (&[("CI_NODE_INDEX", "2"), ("CI_NODE_TOTAL", "3")], "2/3", Some("CI_NODE_INDEX")),
            (&[(KUBERNETES, "2"), (COUNT, "3")], "3/3", Some(KUBERNETES)),
            (&slurm("1", "1", "8", "8"), "1/8", Some(SLURM[0])),
            (&slurm("7", "0", "7", "8"), "8/8", Some(SLURM[0])),
            (&[&slurm("5", "1", "9", "3")[..], &[(SLURM[3], "4")]].concat(), "2/3", Some(SLURM[0])),
        ];
        for (set, shard, name) in cases {
            assert_eq!(shard_of(set), Ok((shard.to_owned(), name)), "{set:?}");
        }
    }

    #[test]
    fn what_an_engine_says_wrongly_is_one_sentence() {
        let cases: [(VariableSet<'_>, &str); 9] = [
            (&[(INDEX, "0")], "PUMICE_SHARD_INDEX is set, and PUMICE_SHARD_COUNT is not: correct it"),
            (&[(COUNT, "4")], "PUMICE_SHARD_COUNT is set, and PUMICE_SHARD_INDEX is not"),
            (&[(KUBERNETES, "0")], "JOB_COMPLETION_INDEX is set, and PUMICE_SHARD_COUNT is not"),
            (&[(INDEX, "4"), (COUNT, "4")], "as in 2/4; 5/4 is not that"),
            (&[(INDEX, "18446744073709551615"), (COUNT, "4")], "as in 2/4"),
            (&[(INDEX, "-1"), (COUNT, "4")], "PUMICE_SHARD_INDEX=-1 is no whole number from 0"),
            (&[("CI_NODE_INDEX", "0"), ("CI_NODE_TOTAL", "3")], "CI_NODE_INDEX: give the number of this"),
            (&slurm("7", "1", "7", "3"), "SLURM_ARRAY_TASK_ID=7 is of an array with gaps"),
            (&slurm("0", "1", "7", "7"), "is of an array with gaps"),
        ];
        for (set, sentence) in cases {
            let refused = shard_of(set).unwrap_err();
            assert!(refused.contains(sentence) && !refused.contains('\n'), "{set:?}: {refused}");
        }
        let given = "2/5".parse().unwrap();
        assert_eq!(shard(Some(given), |_| Some("x".to_owned())).unwrap(), (given, None));
    }
}
