//! What commands print with `--json` is what docs/schemas says, each field of which is described.

mod json {
    pub(crate) mod commands;
}

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use json::commands::{COMMANDS_ALONE, CommandRuns};
use serde_json::Value;

fn schemas() -> Vec<(String, Value)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/schemas");
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let read = |file: &PathBuf| {
        let name = file.file_stem().unwrap().to_string_lossy().into_owned();
        (name, serde_json::from_str(&fs::read_to_string(file).unwrap()).expect("it is JSON"))
    };
    files.iter().map(read).collect()
}

/// What a schema refuses of a value; `None`: it takes it.
fn refusal(schema: &Value, value: &Value) -> Option<String> {
    let judge = jsonschema::options().build(schema).expect("it is a schema");
    let errors = judge.iter_errors(value).map(|error| format!("{}: {error}", error.instance_path()));
    let errors: Vec<String> = errors.take(5).collect();
    (!errors.is_empty()).then(|| errors.join("\n  "))
}

/// Fields of objects that the schema does not describe, unless it takes any.
fn unknown(schema: &Value, value: &Value, path: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            let known = schema["properties"].as_object();
            for (name, field) in fields {
                let path = format!("{path}/{name}");
                match (known.and_then(|known| known.get(name)), &schema["additionalProperties"]) {
                    (Some(schema), _) => unknown(schema, field, &path, found),
                    (None, Value::Null) if known.is_some() => found.push(path),
                    (None, more) => unknown(more, field, &path, found),
                }
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                unknown(&schema["items"], item, &format!("{path}/{index}"), found);
            }
        }
        _ => {}
    }
}

#[test]
fn what_commands_print_is_what_their_schemas_say() {
    let Some(stage) = CommandRuns::new() else { return };
    let mut faults = Vec::new();
    let mut judged = 0;
    for (name, schema) in schemas() {
        let values = stage.values(&name);
        assert!(!values.is_empty(), "no command of this test prints {name}");
        for value in values {
            judged += 1;
            faults.extend(refusal(&schema, &value).map(|errors| format!("{name}: {errors}")));
            // Records of traces and packets have more fields than one run shows: their pages list them.
            if !["trace-list", "capture"].contains(&name.as_str()) {
                let mut more = Vec::new();
                unknown(&schema, &value, "", &mut more);
                more.truncate(5);
                faults.extend((!more.is_empty()).then(|| format!("{name} does not describe {more:?}")));
            }
        }
    }
    faults.sort();
    faults.dedup();
    assert!(faults.is_empty(), "\n  {}", faults.join("\n  "));
    assert!(judged >= schemas().len());
}

#[test]
fn every_field_is_described_and_every_schema_refuses_something() {
    fn walk(schema: &Value, path: &str, faults: &mut Vec<String>) {
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            if field["description"].as_str().is_none_or(|text| text.len() < 4) {
                faults.push(format!("{path}/{name}"));
            }
            // A field that is null in one run has a type in another one.
            if field["type"] == "null" {
                faults.push(format!("{path}/{name}: only null"));
            }
            walk(field, &format!("{path}/{name}"), faults);
        }
        for below in ["items", "additionalProperties"] {
            if schema[below].is_object() {
                walk(&schema[below], &format!("{path}/{below}"), faults);
            }
        }
    }
    let mut faults = Vec::new();
    for (name, schema) in schemas() {
        walk(&schema, &name, &mut faults);
        assert!(refusal(&schema, &Value::from("text")).is_some(), "{name} takes a text");
        assert!(schema["title"].is_string() && schema["description"].is_string(), "{name}");
    }
    assert!(faults.is_empty(), "no description, or no type: {faults:?}");
}

#[test]
fn the_page_lists_every_command_that_has_the_option() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let printed =
        Command::new(env!("CARGO_BIN_EXE_pumice")).args(["reference", "commands"]).output().unwrap();
    let reference = String::from_utf8(printed.stdout).unwrap();
    let page = fs::read_to_string(root.join("docs/json.md")).unwrap();
    let mut seen = 0;
    for section in reference.split("\n## ").filter(|section| section.contains("| `--json` |")) {
        let command = section.lines().next().unwrap_or_default();
        seen += 1;
        assert!(page.contains(&format!("`{command}`")), "docs/json.md does not list {command}");
    }
    assert!(seen > 20, "{seen}");
    for (name, _) in schemas() {
        assert!(page.contains(&format!("](schemas/{name}.json)")), "docs/json.md does not list {name}");
    }
    assert!(COMMANDS_ALONE.iter().all(|(name, _)| schemas().iter().any(|(known, _)| known == name)));
}
