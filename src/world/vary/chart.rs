//! Draws the figures as an SVG: the first parameter along the width, a line for each value of the others.

use std::fmt::Write as _;

use super::points::{Axis, Point, PointResult, shown};

/// Width and height of the picture, and the room for titles at its left, right, top and bottom.
const SIZE: (f64, f64) = (720.0, 420.0);
const ROOM: (f64, f64, f64, f64) = (80.0, 150.0, 30.0, 60.0);
/// Colours of the lines, which people with any sight tell apart (Okabe and Ito).
const COLOURS: [&str; 7] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"];
/// Number of numbers at an axis.
const TICKS: u32 = 5;

/// A line: what it is about, and its vertices.
type Line = (String, Vec<(f64, f64)>);

/// Returns the picture. Points without a figure are left out.
pub(super) fn svg(axes: &[Axis], title: &str, points: &[Point], results: &[PointResult]) -> String {
    let lines = lines(axes, points, results);
    let all = || lines.iter().flat_map(|(_, vertices)| vertices);
    let (least_x, most_x) = ends(all().map(|vertex| vertex.0));
    let (_, most_y) = ends(all().map(|vertex| vertex.1));
    let (left, right, top, bottom) = ROOM;
    let (wide, high) = (SIZE.0 - left - right, SIZE.1 - top - bottom);
    let x_of = |x: f64| left + wide * if most_x > least_x { (x - least_x) / (most_x - least_x) } else { 0.5 };
    let y_of = |y: f64| SIZE.1 - bottom - high * if most_y > 0.0 { y / most_y } else { 0.0 };
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
        SIZE.0, SIZE.1
    );
    for step in 0..=TICKS {
        let part = f64::from(step) / f64::from(TICKS);
        let y = y_of(most_y * part);
        let number = shown(most_y * part);
        let _ = writeln!(
            out,
            "<path d=\"M{left:.1} {y:.1}h{wide:.1}\" stroke=\"#ddd\"/><text x=\"{:.1}\" y=\"{:.1}\" \
             text-anchor=\"end\">{number}</text>",
            left - 8.0,
            y + 4.0
        );
    }
    if let Some(axis) = axes.first() {
        for value in ticks(&axis.values) {
            let text = escaped(&axis.written(value));
            let (x, y) = (x_of(value), SIZE.1 - bottom + 18.0);
            let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{text}</text>");
        }
        let (x, y) = (left + wide / 2.0, SIZE.1 - 14.0);
        let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{}</text>", axis.name);
    }
    let _ = writeln!(out, "<text x=\"{left:.1}\" y=\"18\">{}</text>", escaped(title));
    for (number, (name, vertices)) in lines.iter().enumerate() {
        let colour = COLOURS.get(number % COLOURS.len()).copied().unwrap_or("#000000");
        let path: Vec<String> =
            vertices.iter().map(|(x, y)| format!("{:.1},{:.1}", x_of(*x), y_of(*y))).collect();
        let _ = writeln!(
            out,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
            path.join(" ")
        );
        for vertex in &path {
            let (x, y) = vertex.split_once(',').unwrap_or_default();
            let _ = writeln!(out, "<circle cx=\"{x}\" cy=\"{y}\" r=\"3\" fill=\"{colour}\"/>");
        }
        let (x, y) = (SIZE.0 - right + 12.0, top + 16.0 * (number as f64 + 1.0));
        let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" fill=\"{colour}\">{}</text>", escaped(name));
    }
    out.push_str("</svg>\n");
    out
}

/// Returns the lines, in the order of their first points.
fn lines(axes: &[Axis], points: &[Point], results: &[PointResult]) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for (point, result) in points.iter().zip(results) {
        let (Some(x), Some(y)) = (point.first(), result.figure) else { continue };
        let others = axes.iter().zip(&result.values).skip(1);
        let name =
            others.map(|(axis, value)| format!("{} {value}", axis.name)).collect::<Vec<_>>().join(", ");
        match lines.iter_mut().find(|(known, _)| *known == name) {
            Some((_, vertices)) => vertices.push((*x, y)),
            None => lines.push((name, vec![(*x, y)])),
        }
    }
    for (_, vertices) in &mut lines {
        vertices.sort_by(|one, other| one.0.total_cmp(&other.0));
    }
    lines
}

/// Returns the least and the greatest of some numbers; 0 if there are none.
fn ends(numbers: impl Iterator<Item = f64>) -> (f64, f64) {
    let (least, most) = numbers
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), one| (least.min(one), most.max(one)));
    if least <= most { (least, most) } else { (0.0, 0.0) }
}

/// Returns the values that are written at the axis: all of them, or some if there are many.
fn ticks(values: &[f64]) -> impl Iterator<Item = f64> {
    let step = values.len().div_ceil(TICKS as usize + 1).max(1);
    values.iter().copied().step_by(step)
}

/// Escapes a text for XML.
fn escaped(text: &str) -> String {
    let text: String = text.chars().filter(|c| !c.is_control()).collect();
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_other_value_has_a_line_and_text_is_escaped() {
        let axes = [
            Axis { name: "delay", values: vec![1000.0, 2000.0] },
            Axis { name: "loss", values: vec![0.0, 0.01] },
        ];
        let points: Vec<Point> =
            [[1000.0, 0.0], [1000.0, 0.01], [2000.0, 0.0], [2000.0, 0.01]].map(Vec::from).into();
        let results: Vec<PointResult> = points
            .iter()
            .map(|point| PointResult {
                values: axes.iter().zip(point).map(|(axis, value)| axis.written(*value)).collect(),
                figure: (point[1] == 0.0 || point[0] > 1000.0).then_some(point[0]),
                world_ns: 0,
                end: String::new(),
                is_certified: true,
            })
            .collect();
        let picture = svg(&axes, "<b>", &points, &results);
        assert_eq!(picture.matches("<polyline").count(), 2);
        assert_eq!(picture.matches("<circle").count(), 3);
        assert!(picture.contains("&lt;b&gt;") && !picture.contains("<b>"), "{picture}");
        assert!(picture.contains(">loss 1%</text>"), "{picture}");
        assert!(svg(&axes, "x", &[], &[]).ends_with("</svg>\n"));
    }
}
