//! `pumice course`: checks a reader's program for the exercises of docs/course.

mod attempt;
mod exercises;

use std::ffi::OsString;
use std::io::Write;

use clap::{Args, Subcommand};
use serde::Serialize;

use crate::observe::ProgressDisplay;
use crate::outcome::{CommandError, CommandResult, Outcome};
use exercises::{EXERCISES, Exercise};

/// Options of `pumice course`.
#[derive(Debug, Args)]
pub(crate) struct CourseOptions {
    #[command(subcommand)]
    action: Option<CourseAction>,
}

#[derive(Debug, Subcommand)]
enum CourseAction {
    /// Run your program for an exercise on pumice, and say whether it passed or what is missing
    ///
    /// It compiles nothing. An exercise with two ends starts the program once for each end. The exit code
    /// is 1 if something is missing.
    Check(CourseCheckOptions),
}

#[derive(Debug, Args)]
struct CourseCheckOptions {
    /// Number of the exercise, which is that of its chapter
    exercise: usize,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
    /// The program and its arguments [default: ./exercise-N]
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    program: Vec<OsString>,
}

#[derive(Serialize)]
struct ExerciseResult<'a> {
    exercise: usize,
    passed: bool,
    missing: &'a [String],
}

/// Runs the command.
pub(crate) fn run(options: &CourseOptions, out: &mut dyn Write) -> CommandResult {
    match &options.action {
        None => list(out),
        Some(CourseAction::Check(options)) => check(options, out),
    }
}

fn list(out: &mut dyn Write) -> CommandResult {
    writeln!(out, "RDMA for the newcomer: docs/course/README.md")?;
    for (number, exercise) in (1..).zip(EXERCISES) {
        let Exercise { title, task, .. } = exercise;
        writeln!(out, "\n{number}  {title}\n   Exercise: {task}")?;
    }
    writeln!(out, "\n`pumice course check N -- PROGRAM` runs your program for exercise N.")?;
    Ok(Outcome::Good)
}

fn check(options: &CourseCheckOptions, out: &mut dyn Write) -> CommandResult {
    let number = options.exercise;
    let exercise = number.checked_sub(1).and_then(|index| EXERCISES.get(index)).ok_or_else(|| {
        CommandError::Usage(format!("there is no exercise {number}: say one from 1 to {}", EXERCISES.len()))
    })?;
    let mut program = options.program.clone();
    if program.is_empty() {
        program.push(format!("./exercise-{number}").into());
    }
    let seconds = attempt::TIMEOUT.as_secs();
    let wait = ProgressDisplay::waiting(format!("your program runs; each of its runs may take {seconds} s"));
    let missing = exercise.missing(&program)?;
    drop(wait);
    let passed = missing.is_empty();
    if options.json {
        serde_json::to_writer(&mut *out, &ExerciseResult { exercise: number, passed, missing: &missing })?;
        writeln!(out)?;
    } else if passed {
        writeln!(out, "exercise {number}: passed")?;
    } else {
        writeln!(out, "exercise {number}: something is missing")?;
        for sentence in &missing {
            writeln!(out, "  {sentence}")?;
        }
    }
    Ok(if passed { Outcome::Good } else { Outcome::Bad })
}
