//! The page of all kinds of faults with their fields, and of the ready plans.

use std::io::{self, Write};

use pumice_device::faults::{KINDS, READY, WHEN};

use super::table;

/// Writes the page.
pub(super) fn write(out: &mut dyn Write) -> io::Result<()> {
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
    table::head(&["Plan", "What it imitates"], out)?;
    for plan in READY {
        table::row(&[&format!("`{}`", plan.name), &plan.imitates()], out)?;
    }
    Ok(())
}

fn fields<T: AsRef<str>>(fields: &[(&str, T)], out: &mut dyn Write) -> io::Result<()> {
    table::head(&["Field", "Meaning"], out)?;
    for (name, meaning) in fields {
        table::row(&[&format!("`{name}`"), meaning.as_ref()], out)?;
    }
    Ok(())
}

/// Returns the text with a capital letter at its beginning.
fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}
