//! The performance models: which there are, with the source of each number, and which one an option names.

use std::io::{self, Read as _, Write};
use std::path::Path;

use pumice_device::performance::{BUILT_IN_MODELS, Figure, KEYS, Key, PerformanceModel};
use serde::Serialize;

use crate::outcome::CommandError;

/// Most bytes of a file with a model.
const MAX_MODEL_BYTES: u64 = 1 << 18;

/// Returns the model that an option names: NAME, NAME:PLACEMENT, or a file.
///
/// # Errors
/// No model has this name and no file can be read, the file is wrong, or the model has no such placement.
pub(crate) fn named(name: &str) -> Result<PerformanceModel, CommandError> {
    let refused = |problem: String| CommandError::Usage(format!("--model {name}: {problem}"));
    let (model, placement) = match name.split_once(':') {
        Some((model, placement)) => (model, Some(placement)),
        None => (name, None),
    };
    if let Some(found) = PerformanceModel::built_in(model) {
        let placed = placement.map_or(Ok(found.clone()), |placement| found.placed(placement));
        return placed.map_err(|error| refused(error.to_string()));
    }
    let text = read(Path::new(name)).map_err(|error| {
        let names: Vec<&str> = BUILT_IN_MODELS.iter().map(|model| model.name).collect();
        refused(format!("it is neither a model ({}) nor a file that can be read: {error}", names.join(", ")))
    })?;
    PerformanceModel::parse(&text).map_err(|error| refused(error.to_string()))
}

fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let length = std::fs::File::open(path)?.take(MAX_MODEL_BYTES + 1).read_to_string(&mut text)?;
    if length as u64 > MAX_MODEL_BYTES {
        return Err(io::Error::other(format!("it has more than {MAX_MODEL_BYTES} bytes")));
    }
    Ok(text)
}

fn built_in() -> impl Iterator<Item = PerformanceModel> {
    BUILT_IN_MODELS.iter().filter_map(|model| PerformanceModel::built_in(model.name))
}

/// Prints the models, each number with its source.
pub(crate) fn print(out: &mut dyn Write) -> io::Result<()> {
    for (index, model) in built_in().enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        writeln!(out, "{}: {}", model.name, model.about)?;
        for row in KEYS {
            print_figure(out, "  ", row.key, model.figures.get(&row.key))?;
        }
        for (name, placement) in &model.placements {
            writeln!(out, "  {}:{name}: {}", model.name, placement.about)?;
            for row in KEYS {
                print_figure(out, "    ", row.key, placement.figures.get(&row.key))?;
            }
        }
    }
    Ok(())
}

fn print_figure(out: &mut dyn Write, indent: &str, key: Key, figure: Option<&Figure>) -> io::Result<()> {
    let Some(Figure { value, source, guess }) = figure else { return Ok(()) };
    let guess = if *guess { "a guess; " } else { "" };
    writeln!(out, "{indent}{:<20} {value:>8}  {guess}{source}", key.name())
}

/// Prints one JSON array of the models.
pub(crate) fn print_json(out: &mut dyn Write) -> Result<(), CommandError> {
    #[derive(Serialize)]
    struct Number<'a> {
        name: &'static str,
        value: f64,
        source: &'a str,
        guess: bool,
    }
    #[derive(Serialize)]
    struct Model<'a> {
        name: String,
        about: &'a str,
        numbers: Vec<Number<'a>>,
    }
    let models: Vec<PerformanceModel> = built_in().collect();
    let placed = models.iter().flat_map(|model| {
        let names = model.placements.keys().filter_map(|name| model.clone().placed(name).ok());
        std::iter::once(model.clone()).chain(names)
    });
    let placed: Vec<PerformanceModel> = placed.collect();
    let listed: Vec<Model<'_>> = placed
        .iter()
        .map(|model| Model {
            name: model.name.clone(),
            about: &model.about,
            numbers: model
                .figures
                .iter()
                .map(|(key, Figure { value, source, guess })| Number {
                    name: key.name(),
                    value: *value,
                    source,
                    guess: *guess,
                })
                .collect(),
        })
        .collect();
    serde_json::to_writer_pretty(&mut *out, &listed)?;
    writeln!(out)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_named_with_a_placement_or_by_a_file() {
        assert_eq!(named("connectx-6").expect("it is there").name, "connectx-6");
        assert_eq!(named("connectx-6:metal").expect("it is there").name, "connectx-6:metal");
        let placement = named("wire:near").expect_err("it has none").to_string();
        assert_eq!(placement, "--model wire:near: the model wire has no placement \"near\": it has only one");
        let unknown = named("connectx-9").expect_err("there is none").to_string();
        assert!(unknown.starts_with("--model connectx-9: it is neither a model (connectx-5, "), "{unknown}");
    }

    #[test]
    fn each_number_is_printed_with_its_source() {
        let mut out = Vec::new();
        print(&mut out).expect("a Vec takes everything");
        let text = String::from_utf8(out).expect("it is text");
        assert!(
            text.contains("\n  post_ns                    75  UCX rc_verbs_iface.c: post by verbs"),
            "{text}"
        );
        assert!(text.contains("a guess; as the response of a READ"), "{text}");
        assert!(text.contains("\n  connectx-5:virtual: ConnectX-5"), "{text}");
    }
}
