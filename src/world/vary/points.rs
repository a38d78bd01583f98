//! The points at which a program is run, and the result of the run at a point.

use std::str::FromStr;

use serde::Serialize;

use crate::outcome::CommandError;

/// The result of the run at a point.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct PointResult {
    /// Values of the parameters, in the order of the axes.
    pub(super) values: Vec<String>,
    /// The figure; `None` if the program did not print it, or failed.
    pub(super) figure: Option<f64>,
    /// Duration by the clock of the world, in ns.
    pub(super) world_ns: u64,
    /// How the run ended.
    pub(super) end: String,
    /// The run is certain to repeat.
    pub(super) is_certified: bool,
}

/// Returns a figure with as many digits as it needs.
pub(super) fn shown(figure: f64) -> String {
    let text = format!("{figure:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Maximum number of points.
const MAX_POINTS: usize = 10_000;

/// The values of a parameter, as an option gives them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Range {
    /// All values between two, in equal steps.
    Between(String, String),
    /// Values one by one.
    Listed(Vec<String>),
}

impl FromStr for Range {
    type Err = String;

    fn from_str(text: &str) -> Result<Range, String> {
        let values: Vec<&str> = match text.split_once("..") {
            Some((first, last)) => vec![first, last.strip_prefix('=').unwrap_or(last)],
            None => text.split(',').collect(),
        };
        let values: Vec<String> = values.into_iter().map(|value| value.trim().to_owned()).collect();
        if values.iter().any(String::is_empty) {
            return Err("give two values with two dots, as in 1us..50us, or values with commas".to_owned());
        }
        match (&values[..], text.contains("..")) {
            ([first, last], true) => Ok(Range::Between(first.clone(), last.clone())),
            _ => Ok(Range::Listed(values)),
        }
    }
}

/// A parameter, and its values in the unit in which the device takes them.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Axis {
    /// Name of the parameter, which is also that of its option.
    pub(super) name: &'static str,
    pub(super) values: Vec<f64>,
}

/// A kind of parameter.
struct Parameter {
    name: &'static str,
    /// Units with their size in the unit of the values, of which the first is that unit.
    units: &'static [(&'static str, f64)],
}

const DELAY: Parameter =
    Parameter { name: "delay", units: &[("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9), ("", 1.0)] };
const LOSS: Parameter = Parameter { name: "loss", units: &[("%", 1e-2), ("", 1.0)] };
const RATE: Parameter =
    Parameter { name: "rate", units: &[("Gbit", 1.0), ("Mbit", 1e-3), ("Kbit", 1e-6), ("Tbit", 1e3)] };

const HOSTS: Parameter = Parameter { name: "hosts", units: &[("", 1.0)] };

/// A point: its values, in the order of the axes.
pub(super) type Point = Vec<f64>;

/// The grid of all points.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Grid {
    pub(super) axes: Vec<Axis>,
}

impl Grid {
    /// Returns the grid of the ranges of delays, losses, rates and numbers of hosts.
    ///
    /// # Errors
    /// A value is wrong, no parameter is given, or there are too many points.
    pub(super) fn of(ranges: [&Option<Range>; 4], points: u32) -> Result<Grid, CommandError> {
        let given = [&DELAY, &LOSS, &RATE, &HOSTS].into_iter().zip(ranges);
        let axes = given.filter_map(|(parameter, range)| Some((parameter, range.as_ref()?)));
        let axes = axes.map(|(parameter, range)| axis(parameter, range, points));
        let axes = axes.collect::<Result<Vec<Axis>, String>>().map_err(CommandError::Usage)?;
        if axes.is_empty() {
            let sentence =
                "say what varies: --delay 1us..50us, --loss 0..0.1%, --rate 10Gbit..100Gbit or --hosts 2..8";
            return Err(CommandError::Usage(sentence.to_owned()));
        }
        let count = axes.iter().fold(1_usize, |count, axis| count.saturating_mul(axis.values.len()));
        if count > MAX_POINTS {
            return Err(CommandError::Usage(format!("these are {count} points: give {MAX_POINTS} at most")));
        }
        Ok(Grid { axes })
    }

    /// Returns all points; the last axis changes first.
    pub(super) fn points(&self) -> Vec<Point> {
        let mut points: Vec<Point> = vec![Vec::new()];
        for axis in &self.axes {
            let with = |point: &Point| {
                let point = point.clone();
                axis.values.iter().map(move |value| [&point[..], &[*value]].concat()).collect::<Vec<Point>>()
            };
            points = points.iter().flat_map(with).collect();
        }
        points
    }
}

fn axis(parameter: &Parameter, range: &Range, count: u32) -> Result<Axis, String> {
    let Parameter { name, units } = parameter;
    let parse = |text: &String| {
        pumice_device::platform::quantity::scaled(text, units).ok_or_else(|| {
            let units: Vec<&str> =
                units.iter().map(|(unit, _)| *unit).filter(|unit| !unit.is_empty()).collect();
            format!("--{name}: {text:?} is no {name}: write a number with {}", units.join(", "))
        })
    };
    let values = match range {
        Range::Listed(values) => values.iter().map(parse).collect::<Result<Vec<f64>, String>>()?,
        Range::Between(first, last) => {
            // "1..50us" is in one unit, as "0..0.1%" is.
            let unit: String = last.chars().skip_while(|c| c.is_ascii_digit() || *c == '.').collect();
            let has_unit = first.chars().any(|c| !c.is_ascii_digit() && c != '.');
            let first = if has_unit { first.clone() } else { format!("{first}{unit}") };
            let (first, last) = (parse(&first)?, parse(last)?);
            let steps = f64::from(count.saturating_sub(1).max(1));
            (0..count).map(|step| first + (last - first) * f64::from(step) / steps).collect()
        }
    };
    let values = if *name == HOSTS.name { whole(values) } else { values };
    Ok(Axis { name, values })
}

/// Rounds values to whole numbers, of which each stays once.
fn whole(mut values: Vec<f64>) -> Vec<f64> {
    values.iter_mut().for_each(|value| *value = value.round());
    values.dedup();
    values
}

impl Axis {
    /// Returns a value as an option of `pumice world` takes it.
    pub(super) fn written(&self, value: f64) -> String {
        let short = |value: f64, digits: usize| {
            let text = format!("{value:.digits$}");
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        };
        match self.name {
            "delay" if value.round() >= 1000.0 => format!("{}us", short(value.round() / 1e3, 3)),
            "delay" => format!("{}ns", value.round()),
            "loss" => format!("{}%", short(value * 100.0, 6)),
            "hosts" => value.to_string(),
            _ => format!("{}Gbit", short(value, 6)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(parameter: &Parameter, range: &str) -> Vec<String> {
        let axis = axis(parameter, &range.parse().expect("a range"), 3).expect("values");
        axis.values.iter().map(|value| axis.written(*value)).collect()
    }

    #[test]
    fn ranges_have_steps_and_lists_have_values() {
        assert_eq!(values(&DELAY, "1us..50us"), ["1us", "25.5us", "50us"]);
        assert_eq!(values(&DELAY, "0..1us"), ["0ns", "500ns", "1us"]);
        assert_eq!(values(&LOSS, "0..0.1%"), ["0%", "0.05%", "0.1%"]);
        assert_eq!(values(&LOSS, "0.01"), ["1%"]);
        assert_eq!(values(&RATE, "10Gbit,400Gbit"), ["10Gbit", "400Gbit"]);
        assert_eq!(values(&HOSTS, "2..8"), ["2", "5", "8"]);
        assert_eq!(values(&HOSTS, "2..3"), ["2", "3"]);
        assert_eq!(values(&HOSTS, "2,16"), ["2", "16"]);
        assert!("..".parse::<Range>().is_err() && "1us,,2us".parse::<Range>().is_err());
        let wrong = axis(&DELAY, &"1us..5m".parse().expect("a range"), 3).expect_err("no unit");
        assert_eq!(wrong, "--delay: \"5m\" is no delay: write a number with ns, us, ms, s");
    }

    #[test]
    fn a_grid_has_all_pairs() {
        let axes = vec![
            Axis { name: "delay", values: vec![1.0, 2.0] },
            Axis { name: "loss", values: vec![0.0, 0.5] },
        ];
        let points = Grid { axes }.points();
        assert_eq!(points, [[1.0, 0.0], [1.0, 0.5], [2.0, 0.0], [2.0, 0.5]]);
    }
}
