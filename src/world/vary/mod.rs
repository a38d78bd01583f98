//! `pumice world vary`: runs a program with each of several parameters of the network, and prints what it
//! takes.
//!
//! The parameters form a grid, of which each point is a run of "pumice world" in a process of its own.

mod chart;
mod points;
mod runner;

use std::io::Write;
use std::path::Path;
use std::sync::Mutex;

use serde::Serialize;

use super::ci_engines;
use super::options::VaryOptions;
use super::report::save;
use crate::outcome::{CommandError, CommandResult, Outcome, complain};
use points::{Axis, Grid, Point, PointResult, shown};
use runner::PointRunner;

pub(crate) use points::Range;

/// Runs the command.
pub(super) fn run(options: &VaryOptions, out: &mut dyn Write) -> CommandResult {
    crate::models::named(&options.model)?;
    let grid = Grid::of([&options.delay, &options.loss, &options.rate, &options.hosts], options.points)?;
    let (shard, variable) = ci_engines::shard(options.shard, |name| std::env::var(name).ok())?;
    if let Some(variable) = variable {
        complain(&format!("{variable} says that this is shard {shard} of the points"));
    }
    let points: Vec<Point> = grid
        .points()
        .into_iter()
        .enumerate()
        .filter(|(at, _)| shard.has(*at as u64))
        .map(|(_, one)| one)
        .collect();
    let results = run_points(options, &grid, &points)?;
    let title = options.figure.as_deref().unwrap_or("time of the world in us");
    out.write_all(table(&grid.axes, title, &results).as_bytes())?;
    if let Some(file) = &options.data {
        save(file, &data(file, &grid.axes, title, &results))?;
    }
    if let Some(file) = &options.chart {
        save(file, &chart::svg(&grid.axes, title, &points, &results))?;
    }
    let is_good = results.iter().all(|one| one.figure.is_some());
    Ok(if is_good { Outcome::Good } else { Outcome::Bad })
}

/// Runs the points, several at a time, and returns their results in the order of the points.
fn run_points(
    options: &VaryOptions,
    grid: &Grid,
    points: &[Point],
) -> Result<Vec<PointResult>, CommandError> {
    let runner = PointRunner::new(options, &grid.axes)?;
    let jobs =
        options.jobs.map_or_else(|| std::thread::available_parallelism().map_or(1, usize::from), usize::from);
    let next = Mutex::new(points.iter().enumerate());
    let results = Mutex::new(vec![None; points.len()]);
    let trouble = Mutex::new(None);
    let lock = |of: &Mutex<Option<CommandError>>, error| {
        of.lock().unwrap_or_else(std::sync::PoisonError::into_inner).get_or_insert(error);
    };
    std::thread::scope(|scope| {
        for _ in 0..jobs.min(points.len()) {
            scope.spawn(|| {
                loop {
                    let taken = next.lock().unwrap_or_else(std::sync::PoisonError::into_inner).next();
                    let Some((at, point)) = taken else { break };
                    match runner.run(at, point) {
                        Ok(result) => {
                            let mut results =
                                results.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                            if let Some(place) = results.get_mut(at) {
                                *place = Some(result);
                            }
                        }
                        Err(error) => {
                            lock(&trouble, error);
                            break;
                        }
                    }
                }
            });
        }
    });
    if let Some(error) = trouble.into_inner().unwrap_or_default() {
        return Err(error);
    }
    Ok(results.into_inner().unwrap_or_default().into_iter().flatten().collect())
}

/// Returns the results as text: a row for each point.
fn table(axes: &[Axis], title: &str, results: &[PointResult]) -> String {
    let mut rows =
        vec![axes.iter().map(|axis| axis.name.to_owned()).chain([title.to_owned()]).collect::<Vec<_>>()];
    for result in results {
        let figure = result.figure.map_or_else(|| format!("none: {}", result.end), shown);
        let doubt = if result.is_certified || result.figure.is_none() { "" } else { " (not certified)" };
        rows.push(result.values.iter().cloned().chain([format!("{figure}{doubt}")]).collect());
    }
    let mut text = String::new();
    for row in &rows {
        for (column, cell) in row.iter().enumerate() {
            let is_last = column + 1 == row.len();
            let width = rows.iter().filter_map(|row| row.get(column)).map(|one| one.chars().count()).max();
            let width = if is_last { 0 } else { width.unwrap_or(0) };
            text.push_str(&format!("{cell:<width$}{}", if is_last { "\n" } else { "  " }));
        }
    }
    text
}

/// Returns the results as JSON, or as CSV if the name of the file ends so.
fn data(file: &Path, axes: &[Axis], title: &str, results: &[PointResult]) -> String {
    #[derive(Serialize)]
    struct Document<'a> {
        figure: &'a str,
        parameters: Vec<&'static str>,
        points: &'a [PointResult],
    }
    if file.extension().is_some_and(|end| end == "csv") {
        let cell = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
        let titles: Vec<String> = axes.iter().map(|axis| axis.name.to_owned()).collect();
        let mut text = format!("{},{},world_ns,end\n", titles.join(","), cell(title));
        for result in results {
            let figure = result.figure.map(|figure| figure.to_string()).unwrap_or_default();
            let values = result.values.join(",");
            text.push_str(&format!("{values},{figure},{},{}\n", result.world_ns, cell(&result.end)));
        }
        return text;
    }
    let document =
        Document { figure: title, parameters: axes.iter().map(|axis| axis.name).collect(), points: results };
    // Serialization could fail only for maps without string keys, and there are none.
    serde_json::to_string_pretty(&document).unwrap_or_default() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_a_row_for_each_point() {
        let axes = [Axis { name: "delay", values: Vec::new() }];
        let result = |value: &str, figure| PointResult {
            values: vec![value.to_owned()],
            figure,
            world_ns: 7,
            end: "exit code 1".to_owned(),
            is_certified: true,
        };
        let results = [result("1us", Some(2.10)), result("12.5us", None)];
        let text = table(&axes, "t_typical[usec]", &results);
        assert_eq!(text, "delay   t_typical[usec]\n1us     2.1\n12.5us  none: exit code 1\n");
        let csv = data(Path::new("x.csv"), &axes, "a, b", &results);
        assert_eq!(
            csv,
            "delay,\"a, b\",world_ns,end\n1us,2.1,7,\"exit code 1\"\n12.5us,,7,\"exit code 1\"\n"
        );
        let document: serde_json::Value =
            serde_json::from_str(&data(Path::new("x"), &axes, "a", &results)).expect("it is JSON");
        assert_eq!(document["points"][0]["figure"], 2.1);
    }
}
