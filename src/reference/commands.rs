//! Pages of the reference: all commands with their options, all kinds of faults, and the personalities.

use std::collections::BTreeSet;
use std::io::{self, Write};

use clap::{Arg, ArgAction, Command, CommandFactory};
use pumice_device::faults::{KINDS, READY, WHEN};

use crate::cli::Cli;
use crate::personalities::all;

/// Begins a table with these headings.
pub(super) fn head(headings: &[&str], out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "| {} |\n|{}", headings.join(" | "), "---|".repeat(headings.len()))
}

/// Writes a row. Vertical bars and line ends in a cell are escaped, because they would end the cell.
pub(super) fn row(cells: &[&str], out: &mut dyn Write) -> io::Result<()> {
    let cells: Vec<String> =
        cells.iter().map(|cell| cell.trim().replace('|', "\\|").replace('\n', " ")).collect();
    writeln!(out, "| {} |", cells.join(" | "))
}

/// Writes the page.
pub(super) fn write_personalities(out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "# Personalities\n\nAdapters that a device can look like: `pumice run --device NAME`. [Personalities]\
         (../personalities.md) says what for. A call that is refused fails with EOPNOTSUPP.\n"
    )?;
    let headings =
        ["Name", "What it is", "Vendor and part", "Driver", "Queue pairs", "Vendor's calls", "Refused calls"];
    head(&headings, out)?;
    for one in all() {
        let name = format!("`{}`", one.name);
        let refused: Vec<String> = one.refused.iter().map(|call| format!("`{call}`")).collect();
        let refused = if refused.is_empty() { "none".to_owned() } else { refused.join(", ") };
        let calls = one.vendor_calls.map_or("none".to_owned(), |calls| format!("`{calls}`"));
        let cells = [&name, &one.remark, &one.id, &one.driver, &one.queue_pairs, &calls, &refused];
        row(&cells.map(String::as_str), out)?;
    }
    Ok(())
}

/// Writes the page.
pub(super) fn write_faults(out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "# Faults\n\nA rule says what happens, and to which packets, calls or completions. \
         [Fault plans](../fault-plans.md) explains how to use rules, and `pumice fault kinds` prints them."
    )?;
    writeln!(out, "\n## When a rule applies\n\nEvery rule may have these fields.\n")?;
    fields(WHEN, out)?;
    for kind in KINDS {
        writeln!(out, "\n## {}\n\n{}. It imitates {}.", kind.name, capital(kind.does), kind.imitates)?;
        writeln!(out, "\n```text\n--fault '{}'\n```", kind.example)?;
        let own = kind.meanings();
        if !own.is_empty() {
            writeln!(out, "\nIts own fields:\n")?;
            fields(&own, out)?;
        }
        writeln!(out, "\nFields that say what it is about:\n")?;
        fields(kind.about, out)?;
    }
    writeln!(out, "\n## Ready plans\n\n`--faults NAME` uses a plan; `pumice fault plans NAME` prints it.\n")?;
    head(&["Plan", "What it imitates"], out)?;
    for plan in READY {
        row(&[&format!("`{}`", plan.name), &plan.imitates()], out)?;
    }
    Ok(())
}

fn fields<T: AsRef<str>>(fields: &[(&str, T)], out: &mut dyn Write) -> io::Result<()> {
    head(&["Field", "Meaning"], out)?;
    for (name, meaning) in fields {
        row(&[&format!("`{name}`"), meaning.as_ref()], out)?;
    }
    Ok(())
}

/// Returns the text with a capital letter at its beginning.
fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// Writes the page.
pub(super) fn write_commands(out: &mut dyn Write) -> io::Result<()> {
    let mut grammar = Cli::command();
    grammar.build();
    writeln!(
        out,
        "# Command line\n\n`pumice COMMAND --help` says the same. [Commands](../commands.md) has examples, \
         and \
         [pumice run](../run.md) more about its options."
    )?;
    let of_run: BTreeSet<String> = grammar
        .find_subcommand("run")
        .into_iter()
        .flat_map(options)
        .map(|arg| arg.get_id().to_string())
        .collect();
    for command in commands(&grammar) {
        write_command(command, "pumice", &of_run, out)?;
    }
    Ok(())
}

fn commands(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|command| !command.is_hide_set() && command.get_name() != "help")
}

/// Returns the command's own arguments, without those that every command has.
fn options(command: &Command) -> impl Iterator<Item = &Arg> {
    let is_of_all = |arg: &Arg| matches!(arg.get_id().as_str(), "help" | "version");
    command.get_arguments().filter(move |arg| !arg.is_hide_set() && !is_of_all(arg))
}

fn write_command(
    command: &Command,
    above: &str,
    of_run: &BTreeSet<String>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let name = format!("{above} {}", command.get_name());
    let about = command.get_long_about().or_else(|| command.get_about());
    writeln!(out, "\n## {name}\n\n{}", about.map(ToString::to_string).unwrap_or_default().trim())?;
    let mut usage = command.clone();
    let usage = usage.render_usage().to_string();
    writeln!(out, "\n```text\n{}\n```", usage.trim_start_matches("Usage: ").trim())?;

    let ids: BTreeSet<String> = options(command).map(|arg| arg.get_id().to_string()).collect();
    let has_those_of_run = command.get_name() != "run" && of_run.is_subset(&ids);
    if has_those_of_run {
        writeln!(out, "\nIt has all options of [pumice run](#pumice-run).")?;
    }
    let own: Vec<&Arg> =
        options(command).filter(|arg| !has_those_of_run || !of_run.contains(arg.get_id().as_str())).collect();
    if !own.is_empty() {
        writeln!(out)?;
        head(&["Option", "Meaning"], out)?;
    }
    for arg in own {
        row(&[&spelling(arg), &meaning(arg)], out)?;
    }
    for below in commands(command) {
        write_command(below, &name, of_run, out)?;
    }
    Ok(())
}

/// Returns how an argument is written: `-v`, `--verbose`; `--addr ADDRESS`; `PROGRAM...`.
fn spelling(arg: &Arg) -> String {
    let takes_value = matches!(arg.get_action(), ArgAction::Set | ArgAction::Append);
    let names = arg.get_value_names().unwrap_or_default();
    let values = names.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    let short = arg.get_short().map(|letter| format!("-{letter}"));
    let long = arg.get_long().map(|word| format!("--{word}"));
    let mut forms: Vec<String> = short.into_iter().chain(long).collect();
    let Some(last) = forms.last_mut() else {
        return format!("`{values}`");
    };
    if takes_value && !values.is_empty() {
        let joint = if arg.is_require_equals_set() { "=" } else { " " };
        last.push_str(&format!("{joint}{values}"));
    }
    forms.iter().map(|form| format!("`{form}`")).collect::<Vec<_>>().join(", ")
}

fn meaning(arg: &Arg) -> String {
    let help = arg.get_long_help().or_else(|| arg.get_help());
    let mut text = help.map(ToString::to_string).unwrap_or_default();
    let defaults: Vec<String> =
        arg.get_default_values().iter().map(|value| value.to_string_lossy().into_owned()).collect();
    let has_values = matches!(arg.get_action(), ArgAction::Set | ArgAction::Append);
    if has_values && !defaults.is_empty() && !arg.is_hide_default_value_set() {
        text.push_str(&format!(" [default: {}]", defaults.join(" ")));
    }
    let possible = arg.get_possible_values();
    if has_values && !possible.is_empty() && !arg.is_hide_possible_values_set() {
        let names: Vec<&str> = possible.iter().map(|value| value.get_name()).collect();
        text.push_str(&format!(" [possible values: {}]", names.join(", ")));
    }
    text
}

/// Returns the help text of the option of `pumice run` with this name.
pub(super) fn help_of_run(option: &str) -> Option<String> {
    let grammar = Cli::command();
    let run = grammar.find_subcommand("run")?;
    let word = option.trim_start_matches("--");
    run.get_arguments().find(|arg| arg.get_long() == Some(word)).map(meaning)
}
