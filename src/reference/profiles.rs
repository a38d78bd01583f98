//! Every field of a profile: its default, its bounds, and what `default.toml` says about it.

use std::collections::BTreeMap;
use std::io::{self, Write};

use pumice_device::profile::{BUILT_IN, Profile, ranges};

use super::table;

/// The tables of a profile: name, heading of the TOML file, and a sentence.
const TABLES: [(&str, &str, &str); 7] = [
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

/// What no field is called.
const NO_FIELD: &str = "no-such-field";

/// Writes the page.
pub(super) fn write(out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "# Profiles\n\nA profile says what the device reports, and where it stops: `pumice run --profile \
         NAME`, or a TOML file with the differences from the default. An unknown field, a wrong type or a \
         value out of bounds is refused with its line."
    )?;
    let said = said_by_default();
    let bounds: BTreeMap<&str, (u64, u64)> = ranges(&Profile::default())
        .into_iter()
        .map(|range| (range.field, (range.lowest, range.highest)))
        .collect();
    for (name, heading, sentence) in TABLES {
        let title = if name.is_empty() { "The device".to_owned() } else { format!("`{heading}`") };
        writeln!(out, "\n## {title}\n\n{sentence}\n")?;
        let fields = fields(heading);
        // A table that the default does not fill has names only; the page that is linked says what they mean.
        let is_said = |field: &String| said.contains_key(&format!("{name}.{field}"));
        if !name.is_empty() && fields.iter().filter(|field| is_said(field)).count() < 3 {
            let names: Vec<String> = fields.iter().map(|field| format!("`{field}`")).collect();
            writeln!(out, "Fields: {}.", names.join(", "))?;
            continue;
        }
        table::head(&["Field", "Default", "Bounds", "Remarks"], out)?;
        for field in fields {
            let full = if name.is_empty() { field.clone() } else { format!("{name}.{field}") };
            let (value, remark) = said.get(&full).map(|(v, r)| (v.as_str(), r.as_str())).unwrap_or_default();
            let value = if value.is_empty() { String::new() } else { format!("`{value}`") };
            let within = bounds.get(full.as_str()).map(|(from, to)| format!("{from} to {to}"));
            table::row(&[&format!("`{field}`"), &value, &within.unwrap_or_default(), remark], out)?;
        }
    }
    writeln!(out, "\n## Built-in profiles\n")?;
    table::head(&["Profile", "What it is"], out)?;
    for (name, text) in BUILT_IN {
        let comment: Vec<&str> =
            text.lines().map_while(|line| line.strip_prefix('#')).map(str::trim).collect();
        table::row(&[&format!("`{name}`"), &comment.join(" ")], out)?;
    }
    Ok(())
}

/// The names of the fields of a table: what the reader of profiles lists when a field is unknown.
fn fields(heading: &str) -> Vec<String> {
    // A port is one of a device.
    let heading = heading.replace("[[device.port]]", "[[device]]\n[[device.port]]");
    let refusal = Profile::parse(&format!("{heading}\n\"{NO_FIELD}\" = \"\"\n")).err().unwrap_or_default();
    // Links name their words in a sentence of their own.
    if let Some((_, words)) = refusal.split_once("a link has the words ") {
        let words = words.split_once(", and the same").map_or(words, |(words, _)| words);
        return words.replace(" and ", ", ").split(", ").map(str::to_owned).collect();
    }
    let listed = refusal.split_once("expected one of").map(|(_, names)| names).unwrap_or_default();
    let quoted: Vec<String> = listed.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    // Tables of their own stand in sections of their own.
    let is_table = |field: &String| heading.is_empty() && TABLES.iter().any(|(name, ..)| name == field);
    quoted.into_iter().filter(|field| !is_table(field)).collect()
}

/// What `default.toml` says: for each field its value, and the comment before it.
fn said_by_default() -> BTreeMap<String, (String, String)> {
    let mut said = BTreeMap::new();
    let (mut table, mut comment) = (String::new(), Vec::new());
    let text =
        BUILT_IN.iter().find(|(name, _)| *name == "default").map(|(_, text)| *text).unwrap_or_default();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(words) = line.strip_prefix('#') {
            comment.push(words.trim());
        } else if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            table = format!("{name}.");
            comment.clear();
        } else if let Some((field, first)) = line.split_once(" = ") {
            let mut value = first.trim().to_owned();
            // A list may go on for several lines.
            while value.starts_with('[') && !value.ends_with(']') {
                let Some(more) = lines.next() else { break };
                let gap = if value.ends_with(',') { " " } else { "" };
                value.push_str(&format!("{gap}{}", more.trim()));
            }
            said.insert(format!("{table}{field}"), (value.replace(", ]", "]"), comment.join(" ")));
            comment.clear();
        } else {
            comment.clear();
        }
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_has_fields_and_the_default_has_their_values() {
        for (_, heading, _) in TABLES {
            assert!(!fields(heading).is_empty(), "{heading:?}");
        }
        let said = said_by_default();
        assert_eq!(said.get("limits.max_qp").map(|(value, _)| value.as_str()), Some("65536"));
        assert_eq!(said.get("port.max_mtu").map(|(_, remark)| remark.is_empty()), Some(false));
        let capabilities = said.get("capabilities").map(|(value, _)| value.as_str()).unwrap_or_default();
        assert!(capabilities.ends_with("\"mem_window_type_2b\"]"), "{capabilities}");
    }
}
