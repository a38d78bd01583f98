//! The page of all fields of a profile: default, bounds, and the comment in `default.toml`.

use std::collections::BTreeMap;
use std::io::{self, Write};

use pumice_device::profile::{BUILT_IN, BuiltIn, Profile, ranges};

use super::commands;

/// The tables of a profile: name, heading of the TOML file, and a sentence.
const TABLES: [(&str, &str, &str); 9] = [
    ("", "", "What the device says about itself. These fields come before any table."),
    ("port", "[port]", "The port of each device."),
    ("limits", "[limits]", "Sizes of tables and queues, as `ibv_query_device` reports them."),
    (
        "congestion",
        "[congestion]",
        "What queue pairs do about congestion. [Congestion control](../congestion.md) says what the \
         parameters mean; a parameter that is left out has the value of the preset.",
    ),
    (
        "ece",
        "[ece]",
        "Options that two ends of a connection agree on: whose they are, and a bit for each that the device \
         has ([Personalities](../personalities.md)).",
    ),
    (
        "adaptive_timer",
        "[adaptive_timer]",
        "Adaptive retransmission: the first wait for an answer and the longest, in microseconds \
         ([Personalities](../personalities.md)).",
    ),
    (
        "link",
        "[link]",
        "The link of each device. [Links](../links.md) says what it does to packets. The tables egress \
         and ingress have the same fields for one direction.",
    ),
    (
        "device",
        "[[device]]",
        "One of several devices: [Several adapters in one host](../devices.md). What is left out is as in \
         the rest of the profile.",
    ),
    (
        "device.port",
        "[[device.port]]",
        "One of the two ports of a device: [Two ports](../devices.md#two-ports).",
    ),
];

/// A name that no field has.
const NO_FIELD: &str = "no-such-field";

/// Writes the page.
pub(super) fn write(out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "# Profiles\n\nA profile says what the device reports, and where it stops: `pumice run --profile \
         NAME`, or a TOML file with the differences from the default. An unknown field, a wrong type or a \
         value out of bounds is refused with its line."
    )?;
    let defaults = default_values();
    let bounds: BTreeMap<&str, (u64, u64)> = ranges(&Profile::default())
        .into_iter()
        .map(|range| (range.field, (range.lowest, range.highest)))
        .collect();
    for (name, heading, sentence) in TABLES {
        let title = if name.is_empty() { "The device".to_owned() } else { format!("`{heading}`") };
        writeln!(out, "\n## {title}\n\n{sentence}\n")?;
        let fields = fields(heading);
        // Of a table that the default does not fill, only names are listed; the linked page explains them.
        let has_default = |field: &String| defaults.contains_key(&format!("{name}.{field}"));
        if !name.is_empty() && fields.iter().filter(|field| has_default(field)).count() < 3 {
            let names: Vec<String> = fields.iter().map(|field| format!("`{field}`")).collect();
            writeln!(out, "Fields: {}.", names.join(", "))?;
            continue;
        }
        commands::head(&["Field", "Default", "Bounds", "Remarks"], out)?;
        for field in fields {
            let full = if name.is_empty() { field.clone() } else { format!("{name}.{field}") };
            let (value, remark) =
                defaults.get(&full).map(|(v, r)| (v.as_str(), r.as_str())).unwrap_or_default();
            let value = if value.is_empty() { String::new() } else { format!("`{value}`") };
            let within = bounds.get(full.as_str()).map(|(from, to)| format!("{from} to {to}"));
            commands::row(&[&format!("`{field}`"), &value, &within.unwrap_or_default(), remark], out)?;
        }
    }
    writeln!(out, "\n## Built-in profiles\n")?;
    commands::head(&["Profile", "What it is"], out)?;
    for built_in in BUILT_IN {
        commands::row(&[&format!("`{}`", built_in.name), &built_in.remark()], out)?;
    }
    Ok(())
}

/// Returns the names of the fields of a table, from the error message of the parser for an unknown field.
fn fields(heading: &str) -> Vec<String> {
    // A port belongs to a device.
    let heading = heading.replace("[[device.port]]", "[[device]]\n[[device.port]]");
    let refusal = Profile::parse(&format!("{heading}\n\"{NO_FIELD}\" = \"\"\n")).err().unwrap_or_default();
    // The fields of links are named in another sentence.
    if let Some((_, words)) = refusal.split_once("a link has the words ") {
        let words = words.split_once(", and the same").map_or(words, |(words, _)| words);
        return words.replace(" and ", ", ").split(", ").map(str::to_owned).collect();
    }
    // For two fields, the message says "expected `this` or `that`".
    let listed = refusal.split_once("expected ").map(|(_, names)| names).unwrap_or_default();
    let quoted: Vec<String> = listed.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    // Fields that are tables have a section of their own.
    let is_table = |field: &String| heading.is_empty() && TABLES.iter().any(|(name, ..)| name == field);
    quoted.into_iter().filter(|field| !is_table(field)).collect()
}

/// Returns the contents of `default.toml`: for each field its value, and the comment before it.
fn default_values() -> BTreeMap<String, (String, String)> {
    let mut defaults = BTreeMap::new();
    let (mut table, mut comment) = (String::new(), Vec::new());
    let text = BuiltIn::of("default").map(|built_in| built_in.text).unwrap_or_default();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(words) = line.strip_prefix('#') {
            comment.push(words.trim());
        } else if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            table = format!("{name}.");
            comment.clear();
        } else if let Some((field, first)) = line.split_once(" = ") {
            let mut value = first.trim().to_owned();
            // A list may span several lines.
            while value.starts_with('[') && !value.ends_with(']') {
                let Some(more) = lines.next() else { break };
                let gap = if value.ends_with(',') { " " } else { "" };
                value.push_str(&format!("{gap}{}", more.trim()));
            }
            defaults.insert(format!("{table}{field}"), (value.replace(", ]", "]"), comment.join(" ")));
            comment.clear();
        } else {
            comment.clear();
        }
    }
    defaults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_has_fields_and_the_default_has_their_values() {
        for (_, heading, _) in TABLES {
            assert!(!fields(heading).is_empty(), "{heading:?}");
        }
        let defaults = default_values();
        assert_eq!(defaults.get("limits.max_qp").map(|(value, _)| value.as_str()), Some("65536"));
        assert_eq!(defaults.get("port.max_mtu").map(|(_, remark)| remark.is_empty()), Some(false));
        let capabilities = defaults.get("capabilities").map(|(value, _)| value.as_str()).unwrap_or_default();
        assert!(capabilities.ends_with("\"mem_window_type_2b\"]"), "{capabilities}");
    }
}
